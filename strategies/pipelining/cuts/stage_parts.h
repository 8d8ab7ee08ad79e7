#pragma once
// Stages of a chain as parts of a pipeline: the partition that follows from a cut and an order, and what parts cost.

#include <cstddef>
#include <string>
#include <string_view>

#include "sim/core/partition.h"
#include "sim/core/timeline.h"
#include "sim/model/problem.h"
#include "strategies/pipelining/cuts/cuts.h"
#include "strategies/pipelining/orders/orders.h"

namespace plimsoll {

/// Whether one of the stages [first, last) has a backward.
bool is_trained(const Problem&, std::size_t first, std::size_t last);

/// Stages [first, last) as the part `id` between all stages before and all behind it, to ask what it would cost.
struct RangePart {
  RangePart(const Problem&, std::size_t first, std::size_t last, DeviceId, bool weights_apart);

  Partition partition;
  PartId id;
};

/// The parts of the cut where the order places them, with its turns, if it has any yet. Throws InputError, which names
/// the strategy, where a part has nothing to train.
Partition partition_of(const Problem&, const StageCut&, std::string_view strategy, const PipelineOrder& placed);

/// The same parts with the turns of an order that was found for them; `note` as of Partition.
Partition with_turns(Partition, const PipelineOrder&, std::string note = {});

/// A partition's order.
PipelineOrder order_of(const Partition&);

/// Of a partition's parts, in plain training.
PartCosts part_costs(const Problem&, const Partition&);

// What a pipeline takes without memory strategies in its parts.

/// Of plain training by a partition's turns, simulated. Throws InputError where they cannot be carried out.
Timeline plain_timeline(const Problem&, const Partition&);

/// Of the fullest device, simulated so.
Bytes plain_peak(const Problem&, const Partition&);

}  // namespace plimsoll
