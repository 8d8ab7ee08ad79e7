#include "strategies/hybrid/split_table.h"

#include <algorithm>
#include <limits>
#include <set>

namespace plimsoll {
namespace {

constexpr std::uint32_t none_taken = UINT32_MAX;  ///< of a node that has no choice yet

/// What each choice of a node costs beside those that its neighbours have taken.
class CostsBeside {
 public:
  CostsBeside(const SplitTable& table, double weight) : table_(table), weight_(weight) {}

  const std::vector<double>& of(std::uint32_t node, const SplitChoices& taken) {
    const std::vector<SplitTable::Choice>& choices = table_.choices(node);
    costs_.resize(choices.size());
    for (std::size_t c = 0; c < costs_.size(); ++c) {
      costs_[c] = (choices[c].seconds + weight_ * choices[c].sums).value;
    }
    for (const std::uint32_t e : table_.edges_of[node]) {
      const SplitTable::Edge& edge = table_.edges[e];
      const bool is_from = edge.from == node;
      const std::uint32_t other = taken[is_from ? edge.to : edge.from];
      if (other == none_taken) continue;
      const std::size_t step = is_from ? table_.choices(edge.to).size() : 1;
      std::size_t at = is_from ? other : other * costs_.size();
      for (double& cost : costs_) {
        cost += (*edge.seconds)[at].value;
        at += step;
      }
    }
    return costs_;
  }

 private:
  const SplitTable& table_;
  double weight_;
  std::vector<double> costs_;
};

bool sweep(const SplitTable& table, SplitChoices& taken, CostsBeside& beside) {
  bool changed = false;
  for (std::uint32_t node = 0; node < table.nodes.size(); ++node) {
    const std::vector<double>& costs = beside.of(node, taken);
    const auto best = static_cast<std::uint32_t>(std::ranges::min_element(costs) - costs.begin());
    const bool is_better = taken[node] == none_taken || costs[best] < costs[taken[node]];
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
  CostsBeside beside(table, weight);
  SplitChoices best;
  Seconds least;
  std::vector<SplitChoices> all = starts;
  all.emplace_back(table.nodes.size(), none_taken);
  std::set<SplitChoices> seen;  // after the first sweep: from there on the same comes of it
  for (SplitChoices& taken : all) {
    bool changes = sweep(table, taken, beside);
    if (!seen.insert(taken).second) continue;
    for (std::uint32_t k = 1; k < sweeps && changes; ++k) changes = sweep(table, taken, beside);
    const Seconds cost = table.priced(taken, weight);
    if (!best.empty() && !(cost < least)) continue;
    best = taken;
    least = cost;
  }
  return best;
}

SplitChoices chosen_in_order(const SplitTable& table, const std::vector<const std::vector<bool>*>& may_have,
                             double weight) {
  CostsBeside beside(table, weight);
  SplitChoices taken(table.nodes.size(), none_taken);
  for (std::uint32_t node = 0; node < table.nodes.size(); ++node) {
    double least = std::numeric_limits<double>::infinity();
    const std::vector<double>& costs = beside.of(node, taken);
    for (std::uint32_t c = 0; c < costs.size(); ++c) {
      if (!(*may_have[node])[c] || !(costs[c] < least)) continue;
      least = costs[c];
      taken[node] = c;
    }
  }
  return taken;
}

}  // namespace plimsoll
