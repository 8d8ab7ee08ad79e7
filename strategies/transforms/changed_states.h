#pragma once
// What an optimizer keeps, in another form than Adam's two numbers for each of a parameter's: for transforms that take
// Adam's place.

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "sim/model/problem.h"

namespace plimsoll {

/// A parameter that Adam trains, as its update in the problem has it.
struct TrainedByAdam {
  const Tensor& parameter;
  std::int64_t numbers = 0;  ///< of the parameter
  Bytes state;               ///< of each of Adam's two
  std::string_view dtype;    ///< of these
};

/// A tensor that is kept from one iteration to the next.
struct KeptState {
  std::string name;  ///< "<name> of <parameter>" in the graph
  Bytes bytes;
  std::string dtype;
};

/// What takes the place of Adam's states and update of one parameter.
struct ChangedStates {
  std::vector<KeptState> states;
  Bytes workspace = {};   ///< while it is updated
  Bytes also_moved = {};  ///< beside gradients (once), states (read and written) and parameters
  Flops flops = {};       ///< where they are no longer few beside the bytes
};

using StatesRule = std::function<std::variant<ChangedStates, std::string>(const TrainedByAdam&)>;

struct OtherOptimizer {
  std::string name;  ///< of the optimizer; its updates say so in their attribute `optimizer`
  StatesRule states;
  std::optional<KeptState> shared = {};  ///< by all updates, and changed by none: it lives with the first part
};

/// In the attributes of an update that is not the problem's optimizer's: its own, and the tensor that all share.
inline constexpr std::string_view optimizer_attribute = "optimizer", shared_state_attribute = "shared_state";

/// The problem with that optimizer in Adam's place, or in one sentence why there is none: no updates, or none of
/// Adam's.
std::variant<Problem, std::string> with_optimizer(const Problem&, const OtherOptimizer&);

}  // namespace plimsoll
