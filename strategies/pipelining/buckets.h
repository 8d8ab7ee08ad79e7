#pragma once
// The option of strategies whose parts have copies on several devices: which of their gradients are all-reduced
// together.

#include <vector>

#include "sim/io/quantity.h"
#include "strategies/api/strategy.h"

namespace plimsoll {

inline constexpr OptionInfo buckets_option{
    .name = "buckets",
    .default_value = "off",
    .values = "off or a size, such as 25MB",
    .help =
        "gradients of a part's copies that become complete one after the other are all-reduced together as soon as "
        "they have this many bytes; off: each alone",
    .allowed = [](std::string_view text) { return text == "off" || parse_bytes(text).fine(); },
};

/// The same partitions with buckets of that size.
std::vector<PartitionOutcome> in_buckets(std::vector<PartitionOutcome>, const Options&);

}  // namespace plimsoll
