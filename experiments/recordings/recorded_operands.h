#pragma once
// What recorded operators read and make, by kind, shapes and arguments.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "traces/imports/pytorch/step_draft.h"

namespace plimsoll {

/// Of tensors in lists: recordings have their shapes only.
inline constexpr std::string_view unknown_dtype = "of a list";

struct RecordedCall {
  std::string kind;                       ///< `addmm`
  std::vector<RecordedOperand> operands;  ///< those of lists one by one
  std::vector<std::string> values;        ///< arguments as text: `[1, 1]`, `False`; tensors are empty
};

/// Shapes, types and values as recordings have them, each a JSON list as text; empty where they have none.
RecordedCall recorded_call(std::string kind, const std::string& shapes, const std::string& types,
                           const std::string& values);

/// Whether a parameter is read there, of a forward.
bool is_parameter_place(std::string_view kind, std::size_t operand);

/// Of a forward convolution, from the places of stride, padding and dilation among its arguments; unset where it is
/// transposed, or does not say them.
std::optional<AtenShape> convolved_shape(const RecordedCall&);

/// Apart from those of convolutions.
std::vector<RecordedOperand> results_of(const RecordedCall&);

}  // namespace plimsoll
