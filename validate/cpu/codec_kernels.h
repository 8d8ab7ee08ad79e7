#pragma once
// Packed forms on the CPU: how each codec's lies in memory, and the loops that make it and restore from it. Rounding is
// to the nearest, so that a packed form depends on the value alone.

#include <cstddef>
#include <optional>
#include <string>

#include "sim/core/codec.h"

namespace plimsoll {

/// Why the CPU has no kernels for the codec on that tensor, in words that follow its text; nothing if it has.
std::optional<std::string> lacks_codec(const Codec&, const Graph&, const Tensor&);

/// What the layout of the packed form takes. The three functions below: `lacks_codec` must be nothing.
Bytes layout_bytes(const Codec&, const Tensor&);

/// `workspace`: that of pack_cost(). Throws std::runtime_error where the values need more than is reserved.
void pack(const Codec&, const Tensor&, const std::byte* value, std::byte* packed, std::byte* workspace);

/// A mask restores nothing.
void unpack(const Codec&, const Tensor&, const std::byte* packed, std::byte* value);

}  // namespace plimsoll
