#pragma once
// Graphs of ops and machines for tests of placements: published ones, random ones from a seed.

#include <cstdint>
#include <string>
#include <vector>

#include "strategies/placement/op_dag.h"

namespace plimsoll {

/// An edge with the time of its transfer, in any unit of which a nanosecond stands for one.
struct DrawnEdge {
  std::uint32_t from = 0, to = 0;
  std::int64_t transfer = 0;
};

/// Nodes with their times by processor, each edge a value of its own, of one byte a unit of its transfer. Nodes are in
/// a valid order as they stand.
OpDag drawn_dag(const std::vector<std::vector<Nanoseconds>>& times, const std::vector<DrawnEdge>& edges);

/// So many processors without memory limits: of a class each (`equal`: of one class), a nanosecond a byte between any
/// two.
Machine drawn_machine(std::size_t processors, bool equal);

/// Figure 2 of the ParDNN paper: 17 nodes A to Q of 1; transfers of 1, but 3 (E to I) and 2 (I to M).
OpDag pardnn_figure();

/// The ten tasks of the HEFT paper on three processors.
OpDag heft_tasks();

/// `nodes` ops of 1 to 9 ns on each of `classes`; each reads up to three values of earlier ones. A value may have many
/// readers; now and then an op has a resident parameter, workspace, or must share its processor with another.
OpDag random_dag(std::uint64_t seed, std::uint32_t nodes, std::uint32_t classes, bool groups);

/// One byte to send takes 1 to 3 ns and 0 to 3 ns of latency, other ones for each pair.
Machine random_machine(std::uint64_t seed, std::size_t processors);

}  // namespace plimsoll
