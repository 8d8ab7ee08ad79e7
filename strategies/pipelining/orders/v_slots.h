#pragma once
// Orders for two parts a rank, placed as a V, from building blocks: the slots of time in which the passes of one
// micro-batch run on each rank, repeated every six slots. How many parts a rank keeps is known before any order is: it
// is how long they live in the block.
// Source: Qi, Wan, Amar, Lin, "Pipeline parallelism with controllable memory", NeurIPS 2024.

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "strategies/pipelining/orders/orders.h"

namespace plimsoll {

struct VBlock {
  using Slots = std::array<std::uint32_t, 4>;
  std::vector<Slots> begin;          ///< by rank: F of its first part, F and B of its second, B of its first
  bool has_whole_backwards = false;  ///< a B takes two slots, W within; else one, and W goes where there is room
};

/// The published ones, with about 1/3 and 1/2 of 1F1B's memory.
VBlock v_min_block(std::uint32_t p);
VBlock v_half_block(std::uint32_t p);

/// Whole backwards: the block in which a micro-batch is fastest through all passes, about 2/3 of 1F1B's memory; and
/// that of the published program.
VBlock whole_v_block(std::uint32_t p);
VBlock published_whole_block(std::uint32_t p);

/// All blocks whose first rank begins with F in slot 0 and whose ranks follow each other by (k, -1, k, -1) slots, k
/// changing at most once, to less.
std::vector<VBlock> shifted_v_blocks(std::uint32_t p);

/// The parts of the model that a rank keeps at most where the block is repeated.
std::uint32_t parts_kept(const VBlock&, std::uint32_t micro_batches);

/// The block repeated for each micro-batch, then every pass moved forward into free slots while no rank keeps more than
/// `parts` parts: one order with W where they are made, one after all has been moved back and forward again, and one
/// whose W after the last forward fill what is left; of whole backwards, one that has been moved once instead.
std::vector<PipelineOrder> orders_of(const VBlock&, std::uint32_t micro_batches, std::uint32_t parts);

/// The order that the published program makes, then ours of a block that keeps no more.
std::vector<PipelineOrder> orders_beside_published(const VBlock&, std::uint32_t micro_batches);

}  // namespace plimsoll
