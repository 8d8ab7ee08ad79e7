#pragma once
// What the ranks of a group do with each other's values in one collective: sums in the order of the ranks, and bytes
// from where they are to where they belong.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "validate/networks/rank_layouts.h"

namespace plimsoll {

/// Of one value of a collective, or of a share that a rank takes of its own.
struct ValueExchange {
  bool sums = false;                             ///< of fp32 numbers; else each byte comes from a rank that has it
  Bytes whole;                                   ///< in which the pieces lie
  std::vector<std::vector<RankPiece>> from, to;  ///< by rank of the mesh
};

/// By value of the op: its outputs, or what it changes in place.
std::vector<ValueExchange> value_exchanges(const Graph& rank_graph, const Op&, const std::vector<RankLayout>&,
                                           const Mesh&);

/// Among the ranks of a group, whose tensors lie at these addresses, in the order of the group.
void exchange(const ValueExchange&, std::span<const std::uint32_t> group, std::span<const std::byte* const> from,
              std::span<std::byte* const> to);

}  // namespace plimsoll
