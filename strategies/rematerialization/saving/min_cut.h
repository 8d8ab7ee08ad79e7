#pragma once
// Which values of the forward to save for the backward so that they are the fewest bytes, when some ops may not run
// again: a smallest cut between what is there after the forward and what the backward reads.
// Source: PyTorch, torch/_functorch/partitioners.py, min_cut_rematerialization_partition; there, too, a value far from
// its readers in the backward counts for more.

#include "strategies/api/strategy.h"
#include "strategies/models/op_model.h"
#include "strategies/models/recompute_order.h"

namespace plimsoll {

enum class CutWeight : std::uint8_t {
  bytes,
  bytes_by_distance,  ///< times 1.1 to the power of the number of ops to the nearest reader in the backward, up to 100
};

/// By op: whether it may not run again.
using Banned = std::vector<bool>;

/// Ops that may not run again anyway: those that must run once, and those whose results share a storage with others,
/// since to run them again overwrites these.
Banned banned_anyway(const OpModel&);

/// By value: whether it may not be made again, though the op that makes it may run again for others.
using Pinned = std::vector<bool>;

/// Values that forwards read are pinned so that nothing is made again by more than `longest` ops in a row.
Pinned pinned_after(const OpModel&, const Banned&, std::size_t longest);

/// What is not saved. `banned` must contain banned_anyway(); nothing is pinned if `pinned` is empty.
Evicted evicted_by_min_cut(const OpModel&, const Banned&, CutWeight, const Pinned& pinned = {});

// The strategy `min_cut`: PyTorch's min-cut partitioner on the op graph.

/// Whether an op of this kind is a matrix product, a convolution or attention, which PyTorch does not recompute.
bool is_compute_intensive(std::string_view name);

/// Those that is_compute_intensive() names, and banned_anyway().
Banned banned_with_compute(const PartTask&, const OpModel&);

}  // namespace plimsoll
