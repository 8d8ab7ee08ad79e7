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

/// What of its storage an operand reads: numbers from its first to its last one, and how far two neighbours are apart
/// at most. A dense one spans as many numbers as it has, a view of each third row more, an expanded one fewer.
struct RecordedSpan {
  std::int64_t numbers = 0, stride = 0;
};

struct RecordedCall {
  std::string kind;                       ///< `addmm`
  std::vector<RecordedOperand> operands;  ///< those of lists one by one
  std::vector<std::string> values;        ///< arguments as text: `[1, 1]`, `False`; tensors are empty
  std::vector<RecordedSpan> spans;        ///< of the operands, where the recording has strides; else empty
};

/// Of an operator's arguments as recordings have them, each a JSON list as text; empty where they have none.
struct RecordedTexts {
  const std::string &shapes, &types, &strides, &values;
};
RecordedCall recorded_call(std::string kind, const RecordedTexts&);

/// What Inductor has compiled to one kernel, which runs under its name and writes into its last tensor.
bool is_compiled_kernel(std::string_view name);

/// Whether a parameter is read there, of a forward.
bool is_parameter_place(std::string_view kind, std::size_t operand);

/// Of a forward convolution, from the places of stride, padding and dilation among its arguments; unset where it is
/// transposed, or does not say them.
std::optional<AtenShape> convolved_shape(const RecordedCall&);

/// Apart from those of convolutions.
std::vector<RecordedOperand> results_of(const RecordedCall&);

}  // namespace plimsoll
