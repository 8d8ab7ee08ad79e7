#pragma once
// How long NCCL's collectives take: in a node as they were measured there, over several nodes by the rule with which it
// chooses among its ways.
// Source of the constants: NCCL 2.27, src/graph/tuning.cc (2025).

#include <cstdint>
#include <optional>

#include "sim/core/scaling.h"
#include "sim/core/schedule.h"
#include "sim/core/units.h"

namespace plimsoll {

/// Where the ranks of a group are, and what its links carry while all groups of the mesh exchange.
struct NcclGroup {
  std::uint32_t ranks = 1, nodes = 1;
  std::uint32_t in_node = 1;  ///< ranks of the group in a node
  BytesPerSecond link;        ///< between neighbours of a node
  BytesPerSecond network{0};  ///< of all cards of a node that the group has; 0 in one node
};

/// `bytes`: as CollectiveTimes counts them. In one node: the measured time, if the platform's link can carry what was
/// measured. Over N nodes the least of
///  - ring, of n ranks: r (n - 1) steps, r (N - 1) of them between nodes, and r (n - 1) / n bytes; r = 2 of all_reduce;
///  - tree, of all_reduce only: 2 (in_node - 1) steps in nodes and 2 log2(N) between them, and 2 bytes / 0.92;
///  - NVLS tree, of all_reduce only, where the nodes' switches sum: a step in nodes and 2 log2(N) between them, and 6 /
///  5
///    bytes, twice that over more than two nodes; its bytes at least as long as in a node, where tables have NVLS too;
/// each by the protocols Simple, LL128 and LL, at the node's network or its links, whichever is slower. A shift in one
/// node: an all_gather of two ranks, which is one hop. Nothing for other operations, and where nothing was measured.
std::optional<Seconds> nccl_seconds(const KernelTimes&, const NcclGroup&, CollectiveKind, double bytes);

}  // namespace plimsoll
