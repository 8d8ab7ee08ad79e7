#include "strategies/hybrid/split_table.h"

#include <algorithm>
#include <limits>

namespace plimsoll {
namespace {

/// What a choice costs beside those that its neighbours have taken; `none_taken`: a neighbour that has none yet.
constexpr std::uint32_t none_taken = UINT32_MAX;

Seconds beside_others(const SplitTable& table, const SplitChoices& taken, std::uint32_t node, std::uint32_t choice,
                      double weight) {
  Seconds sum = table.choices(node)[choice].seconds + weight * table.choices(node)[choice].sums;
  for (const std::uint32_t e : table.edges_of[node]) {
    const SplitTable::Edge& edge = table.edges[e];
    const std::uint32_t other = taken[edge.from == node ? edge.to : edge.from];
    if (other == none_taken) continue;
    sum += edge.from == node ? table.of_edge(edge, choice, other) : table.of_edge(edge, other, choice);
  }
  return sum;
}

bool sweep(const SplitTable& table, SplitChoices& taken, double weight) {
  bool changed = false;
  for (std::uint32_t node = 0; node < table.nodes.size(); ++node) {
    std::uint32_t best = 0;
    Seconds least{std::numeric_limits<double>::infinity()};
    for (std::uint32_t c = 0; c < table.choices(node).size(); ++c) {
      const Seconds cost = beside_others(table, taken, node, c, weight);
      if (!(cost < least)) continue;
      least = cost;
      best = c;
    }
    const bool is_better = taken[node] == none_taken || least < beside_others(table, taken, node, taken[node], weight);
    if (!is_better) continue;
    taken[node] = best;
    changed = true;
  }
  return changed;
}

}  // namespace

Seconds SplitTable::priced(const std::vector<std::uint32_t>& choices) const {
  return priced(choices, 1);
}

Seconds SplitTable::priced(const std::vector<std::uint32_t>& choices, double weight) const {
  Seconds sum;
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    sum += (*nodes[n])[choices[n]].seconds + weight * (*nodes[n])[choices[n]].sums;
  }
  for (const Edge& edge : edges) sum += of_edge(edge, choices[edge.from], choices[edge.to]);
  return sum;
}

Seconds SplitTable::priced_with_overlap(const std::vector<std::uint32_t>& choices) const {
  constexpr double backward = 2.0 / 3;
  const Seconds others = priced(choices, 0), sums = priced(choices, 1) - others;
  return others + std::max(Seconds{0}, sums - backward * others);
}

std::vector<Bytes> SplitTable::kept(const std::vector<std::uint32_t>& choices) const {
  std::vector<Bytes> sums(moments);
  for (std::size_t n = 0; n < held.size(); ++n) {
    for (const Held& each : held[n]) {
      for (std::uint32_t m = each.from; m < each.to; ++m) sums[m] += (*each.bytes)[choices[n]];
    }
  }
  return sums;
}

bool SplitTable::keeps_limit(const std::vector<std::uint32_t>& choices) const {
  return !limit || std::ranges::all_of(kept(choices), [&](Bytes bytes) { return bytes <= *limit; });
}

SplitChoices swept(const SplitTable& table, const std::vector<SplitChoices>& starts, std::uint32_t sweeps,
                   double weight) {
  SplitChoices best;
  Seconds least;
  std::vector<SplitChoices> all = starts;
  all.emplace_back(table.nodes.size(), none_taken);
  for (SplitChoices& taken : all) {
    for (std::uint32_t k = 0; k < sweeps && sweep(table, taken, weight); ++k) {
    }
    const Seconds cost = table.priced(taken, weight);
    if (!best.empty() && !(cost < least)) continue;
    best = taken;
    least = cost;
  }
  return best;
}

SplitChoices chosen_in_order(const SplitTable& table, const std::vector<std::vector<bool>>& may_have, double weight) {
  SplitChoices taken(table.nodes.size(), none_taken);
  for (std::uint32_t node = 0; node < table.nodes.size(); ++node) {
    Seconds least{std::numeric_limits<double>::infinity()};
    for (std::uint32_t c = 0; c < table.choices(node).size(); ++c) {
      if (!may_have[node][c]) continue;
      const Seconds cost = beside_others(table, taken, node, c, weight);
      if (!(cost < least)) continue;
      least = cost;
      taken[node] = c;
    }
  }
  return taken;
}

}  // namespace plimsoll
