#pragma once
// Numbers for measuring with. None is zero: what multiplies zeros draws less power than training, and so runs at higher
// clocks.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/core/units.h"

namespace plimsoll {

enum class NumberFormat : std::uint8_t { fp32, bf16, fp16 };
enum class Signs : std::uint8_t { both, positive };

/// Numbers from 1/16 to 1 by size, random bits, the same every time; after 1 MiB they repeat.
std::vector<std::byte> probe_values(Bytes, NumberFormat, Signs);

}  // namespace plimsoll
