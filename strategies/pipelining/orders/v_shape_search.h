#pragma once
// The heuristic of Qi et al. 2024 for two parts a rank, placed as a V: rank r has parts r and 2p - 1 - r, so that the
// first rank has the loss. The four passes of a micro-batch go down, up, down and up the ranks.

#include <cstdint>
#include <optional>
#include <span>

#include "strategies/pipelining/orders/orders.h"

namespace plimsoll {

/// The ranks of 2p parts in a V.
std::vector<std::uint32_t> v_shape(std::uint32_t p);

/// The best of the heuristic's variants by the time that the worst rank is idle between its first and last step. No
/// rank keeps more than its limit in bytes after a forward, nor after a backward that does not itself need more until
/// its weight gradients. Nothing where a limit is too small.
std::optional<PipelineOrder> v_shape_search(const PartCosts&, std::uint32_t micro_batches,
                                            std::span<const std::int64_t> limits);

}  // namespace plimsoll
