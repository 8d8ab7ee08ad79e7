#pragma once
// Packed forms on the CPU: how each codec's lies in memory, and the loops that make it and restore from it. A
// packed form depends on the value and on the seed alone.

#include <cstddef>
#include <optional>
#include <string>

#include "sim/core/codec.h"
#include "validate/networks/kernel_arguments.h"
#include "validate/reference/chance.h"

namespace plimsoll {

/// Why the CPU has no kernels for the codec on that tensor, in words that follow its text; nothing if it has.
std::optional<std::string> lacks_codec(const Codec&, const Graph&, const Tensor&);

/// What the layout of the packed form takes. The three functions below: `lacks_codec` must be nothing.
Bytes layout_bytes(const Codec&, const Tensor&);

/// Whether packed forms depend on the seed: numbers rounded by chance, rows drawn.
bool is_drawn(const Codec&, Rounding);

/// `workspace`: that of pack_cost(). Throws std::runtime_error where the values need more than is reserved.
void pack(const Codec&, const Tensor&, const Chance&, const std::byte* value, std::byte* packed, std::byte* workspace);

/// Of a codec that restores a value: no mask, steps or rows.
void unpack(const Codec&, const Tensor&, const std::byte* packed, std::byte* value);

/// The op, whose first input is that packed form, as the plan lets it be read.
void run_on_packed(const Codec&, const Graph&, const Op&, const KernelArguments&);

}  // namespace plimsoll
