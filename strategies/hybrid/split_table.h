#pragma once
// What the splits of operators cost, as a table that every search over splits reads: the same for all of them.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "sim/core/units.h"
#include "sim/mesh/layout.h"

namespace plimsoll {

struct SplitTable {
  /// A way to cut one operator.
  struct Choice {
    std::vector<std::optional<std::uint8_t>> cuts;  ///< by axis of the table: dimension of the forward's loop
    Seconds seconds;  ///< of its forward and backward on a rank, with what they exchange among themselves
    Seconds sums;     ///< of its parameters' gradients, for each micro-batch; beside the backward, if they hide there
  };
  /// Values that go between two operators and their gradients, laid out anew.
  struct Edge {
    std::uint32_t from = 0, to = 0;                       ///< nodes, from < to
    std::shared_ptr<const std::vector<Seconds>> seconds;  ///< [choice of from][choice of to], row by row
  };
  /// What a node keeps from one moment to before another, by its choice.
  struct Held {
    std::uint32_t from = 0, to = 0;
    std::shared_ptr<const std::vector<Bytes>> bytes;
  };
  /// By operator. Those that are alike, and edges that are, share what they cost.
  std::vector<std::shared_ptr<const std::vector<Choice>>> nodes;
  std::vector<Edge> edges;  ///< at most one between two nodes
  std::vector<std::vector<std::uint32_t>> edges_of;
  std::vector<std::vector<Held>> held;  ///< by node; empty: nobody asks
  std::uint32_t moments = 0;            ///< from the first to the last of what is held
  std::optional<Bytes> limit;           ///< of all that is held at a moment
  Seconds forbidden{1e9};               ///< what costs at least so much cannot be

  const std::vector<Choice>& choices(std::size_t node) const { return *nodes[node]; }
  Seconds of_edge(const Edge& edge, std::uint32_t from, std::uint32_t to) const {
    return (*edge.seconds)[from * nodes[edge.to]->size() + to];
  }
  /// What these choices cost together, all one after the other.
  Seconds priced(const std::vector<std::uint32_t>& choices) const;
  Seconds priced(const std::vector<std::uint32_t>& choices, double weight_of_sums) const;
  /// The same where sums of gradients hide beside the backward, two thirds of all that is not a sum.
  Seconds priced_with_overlap(const std::vector<std::uint32_t>& choices) const;
  /// What is held at each moment.
  std::vector<Bytes> kept(const std::vector<std::uint32_t>& choices) const;
  bool keeps_limit(const std::vector<std::uint32_t>& choices) const;
};

/// By operator: which of its choices.
using SplitChoices = std::vector<std::uint32_t>;

/// Operators in their order, each with its first choice or, where it is cheaper beside those before it, another; then
/// again beside all others, so often; the best of this from several starts: no choice before, or all operators that
/// have a dimension of one name cut along it. Sums of gradients count by their weight. Linear in the size of the table.
SplitChoices swept(const SplitTable&, const std::vector<SplitChoices>& starts, std::uint32_t sweeps, double weight = 1);

/// Operators in their order, each with the cheapest choice beside those before it, among those that it may have: at
/// least one each.
SplitChoices chosen_in_order(const SplitTable&, const std::vector<const std::vector<bool>*>& may_have, double weight);

}  // namespace plimsoll
