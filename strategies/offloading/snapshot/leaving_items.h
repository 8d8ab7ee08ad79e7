#pragma once
// Which values leave for the host between the forward and the backward, so that a budget holds.

#include <cstdint>
#include <optional>
#include <vector>

#include "strategies/offloading/activations/offload_moves.h"

namespace plimsoll {

/// Of what is kept from the forward to the backward as much as the budget takes, where memory is fullest the values
/// whose last reader in the forward is the first. That is also the order in which they leave, so that none waits for
/// the end of another's use. A value leaves whole, or in up to so many chunks, no more of them than it takes. Nothing
/// where all is not enough.
std::optional<std::vector<OffloadItem>> leaving_items(OffloadModel&, const CopyRate& out, Bytes budget,
                                                      std::uint32_t chunks = 1);

}  // namespace plimsoll
