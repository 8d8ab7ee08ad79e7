#pragma once
// Planners of placements without a search: trivial ones, and ones that put clusters of nodes on processors by load.
// Groups stay together, what the chosen processors cannot run goes to the least loaded one that can, and a processor
// without memory gets nothing. None decides orders.

#include "strategies/placement/placing.h"

namespace plimsoll {

/// All on the processor with the least time for all that can hold it.
PlacementOutcome place_on_one(const OpDag&, const Machine&);

/// Units in turn, by their first nodes.
PlacementOutcome place_round_robin(const OpDag&, const Machine&);

/// Consecutive pieces of a topological order, of about equal memory (m-TOPO).
PlacementOutcome place_contiguous(const OpDag&, const Machine&);

/// The critical path on the fastest processor, all else on the least loaded one.
PlacementOutcome place_critical_path(const OpDag&, const Machine&);

/// Units by their earliest start without transfers, each to the least loaded processor.
PlacementOutcome place_by_load(const OpDag&, const Machine&);

/// Critical paths, one after the other, put on processors by load.
PlacementOutcome place_linear_clusters(const OpDag&, const Machine&);

/// Clusters of the dominant sequence (DSC), put on processors by load.
PlacementOutcome place_dominant_sequence(const OpDag&, const Machine&);

/// By node: the number of its cluster, in the order in which they are cut out. Times are means.
std::vector<std::uint32_t> linear_clusters(const OpDag&, const Machine&);

/// Clusters by node, and when nodes start if each cluster has a processor of its own.
struct DominantSequenceClusters {
  std::vector<std::uint32_t> of;
  std::vector<Nanoseconds> start;
};
DominantSequenceClusters dominant_sequence_clusters(const OpDag&, const Machine&);

/// Clusters by their earliest start, each to the processor that is least loaded. A group belongs to the cluster of its
/// longest node, and what the field cannot run to none.
PlacementOutcome merged_by_load(const OpDag&, const Machine&, std::span<const std::uint32_t> cluster,
                                std::span<const Nanoseconds> start);

}  // namespace plimsoll
