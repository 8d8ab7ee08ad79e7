#pragma once
// ParDNN's refinement, which its first version has: paths and nodes change processors where an emulation then
// ends earlier.

#include <vector>

#include "strategies/placement/emulation.h"
#include "strategies/placement/pardnn/pardnn_mapping.h"

namespace plimsoll {

// The first step of ParDNN's refinement: paths that lie between the nodes of another processor go there.

/// By node: processor. A path that waits for one other processor only, and for which only that one waits, changes
/// places with one for which it is the other way round, if the more loaded of the two then has less to do in their
/// spans, or goes there alone. Groups are together in `on`; only paths of whole units move, within the field.
std::vector<std::uint32_t> with_swapped_paths(const OpDag&, const Machine&, const PardnnMapping&,
                                              std::vector<std::uint32_t> on);

/// By node: processor. Paths swapped, nodes switched, then moves on the critical path, at most one round more than the
/// field has processors, and one where the graph is_thin(). What a step changes is kept only where the emulation then
/// ends earlier. Units stay whole; what not all of the field can run stays where it is.
std::vector<std::uint32_t> refined(const OpDag&, const Machine&, const PardnnMapping&, QueueOrder);

/// A node whose readers are all on one other processor, but what it waits for on several, goes to its readers if it
/// sends and receives there more than it receives where it is, and computes; one that waits for one other processor
/// only, but has readers on several, goes there if it takes no longer than a transfer's latency. Single nodes only.
std::vector<std::uint32_t> with_switched_nodes(const OpDag&, const Machine&, const Units&,
                                               std::vector<std::uint32_t> on);

enum class CriticalMoves : std::uint8_t {
  best,          ///< the one with which what waits for it would end earlier by most
  all_improving  ///< each with which it would end earlier
};

/// Walks back from what ends last, over what each node has waited for. Where it has waited for a node of another
/// processor, that one may join it there, with its unit, just before it.
std::vector<std::uint32_t> with_critical_moves(const OpDag&, const Machine&, const Units&,
                                               std::vector<std::uint32_t> on, const Emulation&, CriticalMoves);

}  // namespace plimsoll
