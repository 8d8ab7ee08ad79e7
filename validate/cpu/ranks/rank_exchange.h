#pragma once
// Exchanges between ranks that are threads of one process: sums in the order of the ranks, and bytes from where they
// are to where they belong.

#include <cstddef>
#include <cstdint>
#include <span>

#include "validate/ranks/value_exchange.h"

namespace plimsoll {

/// Among the ranks of a group, whose tensors lie at these addresses, in the order of the group.
void exchange(const ValueExchange&, std::span<const std::uint32_t> group, std::span<const std::byte* const> from,
              std::span<std::byte* const> to);

}  // namespace plimsoll
