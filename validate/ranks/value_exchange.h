#pragma once
// What the ranks of a group exchange in one collective: which bytes each gives and gets, whoever carries them.

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

/// Whether the op hands on what a rank has to the next one, as it is.
bool is_shift(const Op&);
/// Whether other ranks, or a rank's own share, are what the op is about.
bool exchanges(const Op&);
/// The ranks that exchange in it with this one, in their order: itself where it takes a share of its own.
std::vector<std::uint32_t> exchanging_group(const Op&, const Mesh&, std::uint32_t rank);

}  // namespace plimsoll
