#pragma once
// What a pipeline does whose ranks do not wait for the next turn of their order where a later one could be taken.

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "sim/core/partition.h"

namespace plimsoll {

/// By part, in any one unit of time and of memory.
struct TurnCosts {
  std::vector<std::uint32_t> stage;                  ///< the g-th of the model, which copies share
  std::vector<std::array<double, 3>> seconds;        ///< of its pieces forward, backward, weights
  std::vector<double> sent, returned;                ///< a transfer to its forward, and to its backward
  std::vector<std::int64_t> kept, kept_for_weights;  ///< after the forward, and after the backward until the weights
};

/// The turns of the partition's order in the order in which its devices take them where each one that is free takes
/// the first of its own, in the given order, that can begin. No part has more micro-batches between two pieces than
/// in the given order, and no device keeps more after a forward. Nothing where devices come to wait for each other.
/// Transfers do not queue.
std::optional<std::vector<std::vector<Turn>>> greedy_turns(const Partition&, const TurnCosts&);

}  // namespace plimsoll
