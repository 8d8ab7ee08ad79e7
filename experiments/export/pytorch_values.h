#pragma once
// What the values of a chain are called in a plan for PyTorch, and what they are there: values between stages, what a
// stage saves, gradients.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/io/json/json.h"
#include "sim/model/problem.h"

namespace plimsoll {

struct PytorchValue {
  enum class Kind : std::uint8_t { boundary, saved, gradient };
  Kind kind = Kind::boundary;
  std::string name;                 ///< unique in the plan
  std::optional<std::uint32_t> of;  ///< of a value between stages and of its gradient: an index into Chain::tensors
  std::uint32_t stage = 0;          ///< of what a stage saves
  Bytes bytes;
};

/// Throws the InputError of a plan that cannot be written, with the reason.
[[noreturn]] void refuse_for_pytorch(const std::string& why);

/// The values of a chain's problem, by storage of its graph; parameters and their gradients are none.
std::map<StorageId, PytorchValue> pytorch_values(const Problem&);

/// `pytorch.stages` of a trace's source: objects with a name. Throws InputError where there are none.
Json pytorch_stages(const Source&, const std::string& trace);

/// What the exporter says of a chain's modules: `pytorch` of the trace's source, complete for its stages and tensors.
/// Throws InputError where it is not there or is of another chain.
Json pytorch_source(const Chain&);

}  // namespace plimsoll
