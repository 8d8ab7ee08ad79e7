#include "strategies/hybrid/split_table.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

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

/// What is left of eliminated operators: costs by the choices of some nodes.
struct Factor {
  std::vector<std::uint32_t> nodes;  ///< ascending
  std::vector<double> seconds;       ///< the last node's choice runs fastest
};

class Elimination {
 public:
  Elimination(const SplitTable& table, std::size_t largest) : table_(table), largest_(largest) {
    for (std::uint32_t n = 0; n < table.nodes.size(); ++n) {
      Factor own{{n}, {}};
      for (const SplitTable::Choice& choice : table.choices(n))
        own.seconds.push_back((choice.seconds + choice.sums).value);
      add(std::move(own));
    }
    for (const SplitTable::Edge& edge : table.edges) {
      Factor both{{edge.from, edge.to}, {}};
      for (const Seconds seconds : *edge.seconds) both.seconds.push_back(seconds.value);
      add(std::move(both));
    }
  }

  std::optional<SplitChoices> run() {
    std::set<std::pair<std::size_t, std::uint32_t>> queue;
    std::vector<std::size_t> degree(table_.nodes.size());
    for (std::uint32_t n = 0; n < degree.size(); ++n) queue.emplace(degree[n] = neighbours(n).size(), n);
    while (!queue.empty()) {
      const std::uint32_t node = queue.begin()->second;
      queue.erase(queue.begin());
      const std::vector<std::uint32_t> others = neighbours(node);
      if (!eliminate(node, others)) return std::nullopt;
      for (const std::uint32_t other : others) {
        queue.erase({degree[other], other});
        queue.emplace(degree[other] = neighbours(other).size(), other);
      }
    }
    SplitChoices choices(table_.nodes.size(), 0);
    for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
      std::size_t at = 0;
      for (const std::uint32_t other : step->others) at = at * table_.choices(other).size() + choices[other];
      choices[step->node] = step->best[at];
    }
    return choices;
  }

 private:
  struct Step {
    std::uint32_t node;
    std::vector<std::uint32_t> others, best;
  };

  void add(Factor factor) {
    if (of_node_.empty()) of_node_.resize(table_.nodes.size());
    for (const std::uint32_t n : factor.nodes) of_node_[n].insert(factors_.size());
    factors_.push_back(std::move(factor));
  }

  std::vector<std::uint32_t> neighbours(std::uint32_t node) const {
    std::set<std::uint32_t> others;
    for (const std::size_t f : of_node_[node]) others.insert(factors_[f].nodes.begin(), factors_[f].nodes.end());
    others.erase(node);
    return {others.begin(), others.end()};
  }

  bool eliminate(std::uint32_t node, const std::vector<std::uint32_t>& others) {
    std::size_t size = 1;
    for (const std::uint32_t other : others) {
      size *= table_.choices(other).size();
      if (size * table_.choices(node).size() > largest_) return false;
    }
    Step step{node, others, std::vector<std::uint32_t>(size)};
    Factor left{others, std::vector<double>(size)};
    std::vector<std::uint32_t> choice(table_.nodes.size(), 0);
    const std::vector<std::size_t> factors(of_node_[node].begin(), of_node_[node].end());
    for (std::size_t at = 0; at < size; ++at) {
      std::size_t rest = at;
      for (std::size_t k = others.size(); k-- > 0;) {
        choice[others[k]] = static_cast<std::uint32_t>(rest % table_.choices(others[k]).size());
        rest /= table_.choices(others[k]).size();
      }
      double least = std::numeric_limits<double>::infinity();
      for (std::uint32_t c = 0; c < table_.choices(node).size(); ++c) {
        choice[node] = c;
        double sum = 0;
        for (const std::size_t f : factors) sum += entry(factors_[f], choice);
        if (c > 0 && !(sum < least)) continue;
        least = sum;
        step.best[at] = c;
      }
      left.seconds[at] = least;
    }
    for (const std::size_t f : factors) {
      for (const std::uint32_t n : factors_[f].nodes) of_node_[n].erase(f);
      factors_[f] = {};
    }
    if (!others.empty()) add(std::move(left));
    steps_.push_back(std::move(step));
    return true;
  }

  double entry(const Factor& factor, const std::vector<std::uint32_t>& choice) const {
    std::size_t at = 0;
    for (const std::uint32_t n : factor.nodes) at = at * table_.choices(n).size() + choice[n];
    return factor.seconds[at];
  }

  const SplitTable& table_;
  std::size_t largest_;
  std::vector<Factor> factors_;
  std::vector<std::set<std::size_t>> of_node_;
  std::vector<Step> steps_;
};

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

std::optional<SplitChoices> eliminated(const SplitTable& table, std::size_t largest) {
  return Elimination(table, largest).run();
}

}  // namespace plimsoll
