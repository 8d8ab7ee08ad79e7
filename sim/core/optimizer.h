#pragma once
// What an optimizer keeps for each parameter, and what it moves in one update.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/core/graph.h"
#include "sim/core/schedule.h"

namespace plimsoll {

constexpr std::int64_t bytes_of_fp32 = 4;  ///< of one number

/// Which optimizer updates which parameter: that of the first group whose pattern matches its name, else `rest`.
struct Optimizers {
  Optimizer rest = Optimizer::none;
  std::vector<ParameterGroup> groups = {};

  Optimizers(Optimizer all = Optimizer::none) : rest(all) {}
  Optimizers(Optimizer of_rest, std::vector<ParameterGroup> of_groups) : rest(of_rest), groups(std::move(of_groups)) {}

  /// The number of its group; of the rest, that of groups.
  std::size_t group_of(const std::string& parameter) const;
  Optimizer of_group(std::size_t group) const { return group < groups.size() ? groups[group].optimizer : rest; }
  Optimizer of(const std::string& parameter) const { return of_group(group_of(parameter)); }
};

/// Of what an update changes the first parameter's.
std::size_t group_of(const Graph&, const Op& update, const Optimizers&);

/// Bytes of one number of a floating point dtype: `bf16` or `bfloat16`, `fp32` or `float32`, ...; else unset.
std::optional<std::int64_t> bytes_of_dtype(std::string_view dtype);

/// The dtype of a tensor, else of the whole trace.
const std::string& dtype_of(const Graph&, const Tensor&);

/// Whether the optimizer updates an fp32 copy of the parameter and then rounds the copy to the parameter.
bool has_fp32_copy(States, std::string_view dtype);

/// What is kept for one parameter: the fp32 copy, where there is one, then the states (sgd 0, momentum 1, adam 2).
/// A dtype of unknown size has none in fp32.
std::vector<Tensor> states_of(Optimizer, States, const Tensor& parameter, std::string_view dtype);
Bytes state_bytes(Optimizer, States, Bytes parameter, std::string_view dtype);

/// Of an exponential moving average of the parameter: in fp32 where the optimizer has an fp32 copy of it, else as it
/// is.
Bytes average_bytes(States, Bytes parameter, std::string_view dtype);

/// What one update moves: it reads the gradients, reads and writes all states, writes the parameters, and reads those
/// that have no fp32 copy.
Bytes update_bytes_moved(const Graph&, States, const std::vector<TensorId>& parameters,
                         const std::vector<TensorId>& gradients, const std::vector<TensorId>& states);

/// What clipping by the norm of all gradients moves: it reads them for the norm, then reads and writes them.
Bytes clipping_bytes_moved(const Graph&, const std::vector<TensorId>& gradients);

/// An update of the parameters and states in place.
Op update_op(const Graph&, States, std::string name, const std::vector<TensorId>& parameters,
             const std::vector<TensorId>& gradients, const std::vector<TensorId>& states);

/// `states` for these parameters: `by_dtype` becomes fp32 or as_parameters if it means the same for all of them.
States taken(States, const Graph&, const std::vector<TensorId>& parameters);

/// The message that a parameter cannot have states in fp32: the number of its elements is unknown.
std::string no_fp32_states(const std::string& parameter, const std::string& dtype);

/// How many states an optimizer keeps for a parameter, and how many times the bytes of fp32 parameters it moves.
std::int64_t optimizer_states(Optimizer);
std::int64_t optimizer_moves(Optimizer);

}  // namespace plimsoll
