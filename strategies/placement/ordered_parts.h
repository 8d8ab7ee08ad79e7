#pragma once
// Parts of a graph of nets that are numbered so that no net leads from one to a smaller number.

#include <cstdint>
#include <span>
#include <vector>

#include "strategies/placement/net_dag.h"

namespace plimsoll {

/// What a part is given, and what it may have at most.
struct PartLimit {
  double share = 0;  ///< of all weight; they sum to 1
  double most = 0;   ///< weight
};

/// By vertex: its part. The best of three ways to grow one part after the other, each improved.
std::vector<std::uint32_t> grown_parts(const NetDag&, std::span<const PartLimit>);

/// Moves single vertices to parts where less is cut, or that have less to do, until none gains or the passes end.
void improve_parts(const NetDag&, std::span<const PartLimit>, std::vector<std::uint32_t>& part);

/// Bytes of each net times the parts that read it beside its maker's.
std::int64_t cut_bytes(const NetDag&, std::span<const std::uint32_t> part);

}  // namespace plimsoll
