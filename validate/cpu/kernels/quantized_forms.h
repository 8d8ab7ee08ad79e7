#pragma once
// Quantized forms on the CPU: groups of values in a row, ranges of parts, a fixed range. Scales come first, so that
// they are aligned; then what belongs to samples, masks, and the numbers.

#include <cstddef>
#include <optional>
#include <string>

#include "sim/core/codec.h"
#include "validate/networks/kernel_arguments.h"
#include "validate/reference/chance.h"

namespace plimsoll {

/// Why the CPU has no kernels for the codec, in words that follow its text; nothing if it has.
std::optional<std::string> lacks_quantization(const Codec&);

Bytes layout_of_quantized(const Codec&, const Tensor&);

/// Whether numbers are rounded by chance, where that is asked for.
bool rounds(const Codec&);

/// Returns how many values are above 0 where the form has room for some of these only.
std::optional<std::int64_t> pack_quantized(const Codec&, const Tensor&, Rounding, std::uint64_t seed, const float* x,
                                           std::byte* packed);
void unpack_quantized(const Codec&, const Tensor&, const std::byte* packed, float* x);

/// The gradient of a ReLU, of whose result that is the form; it must keep signs.
void relu_gradient_of_quantized(const Codec&, const Tensor&, const std::byte* packed, const KernelArguments&);

}  // namespace plimsoll
