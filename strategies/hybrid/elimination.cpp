#include "strategies/hybrid/elimination.h"

#include "sim/core/tolerance.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

namespace plimsoll {
namespace {

/// Costs by the choices of some nodes of a region, the last node's running fastest.
struct Factor {
  std::vector<std::uint32_t> nodes;
  std::vector<double> costs;
};

/// A node that has been eliminated: what its choices cost, with all that was eliminated before it, by those of others.
struct EliminatedNode {
  std::uint32_t node = 0;
  std::vector<std::uint32_t> others;
  std::vector<double> costs;        ///< [choices of others][choice]; empty where only the cheapest is asked
  std::vector<double> least;        ///< [choices of others]
  std::vector<std::uint32_t> best;  ///< the same: the first choice that costs least
};

}  // namespace

SplitNeighbourhoods::SplitNeighbourhoods(const SplitTable& table, double weight) : table_(table) {
  const double forbidden = table.forbidden.value;
  double sum = 0;
  const auto largest = [&](const std::vector<double>& costs) {
    double most = 0;
    for (const double cost : costs) most = cost < forbidden ? std::max(most, cost) : most;
    return most;
  };
  for (std::uint32_t n = 0; n < table.nodes.size(); ++n) {
    std::vector<double>& own = own_.emplace_back();
    for (const SplitTable::Choice& choice : table.choices(n))
      own.push_back(choice.seconds.value + weight * choice.sums.value);
    sum += largest(own);
  }
  std::map<const std::vector<Seconds>*, std::uint32_t> known;
  std::vector<double> most;
  beside_.resize(own_.size());
  for (const SplitTable::Edge& edge : table.edges) {
    const auto [place, fresh] = known.try_emplace(edge.seconds.get(), static_cast<std::uint32_t>(pairs_.size()));
    if (fresh) {
      std::vector<double>& costs = pairs_.emplace_back();
      for (const Seconds seconds : *edge.seconds) costs.push_back(seconds.value);
      most.push_back(largest(costs));
    }
    sum += most[place->second];
    beside_[edge.from].push_back({edge.to, place->second, true});
    beside_[edge.to].push_back({edge.from, place->second, false});
  }
  barrier_ = 2 * sum + std::numeric_limits<double>::min();
  for (auto* lists : {&own_, &pairs_}) {
    for (std::vector<double>& costs : *lists) {
      for (double& cost : costs) cost = cost < forbidden ? cost : barrier_;
    }
  }
}

void SplitNeighbourhoods::set_prices(std::vector<double> by_moment) {
  prices_ = std::move(by_moment);
  std::vector<double> until(prices_.size() + 1, 0);  // of a byte from the first moment on
  for (std::size_t m = 0; m < prices_.size(); ++m) until[m + 1] = until[m] + prices_[m];
  if (unpriced_.empty()) unpriced_ = own_;
  priced_ = unpriced_;
  for (std::size_t n = 0; n < own_.size(); ++n) {
    for (const SplitTable::Held& held : table_.held[n]) {
      const double price = until[held.to] - until[held.from];
      for (std::size_t c = 0; c < priced_[n].size(); ++c) {
        priced_[n][c] += price * static_cast<double>((*held.bytes)[c].count);
      }
    }
  }
  if (!table_.limit) own_ = priced_;
}

double SplitNeighbourhoods::pair(std::uint32_t node, const Beside& beside, std::uint32_t choice,
                                 std::uint32_t other) const {
  return beside.is_from ? pairs_[beside.costs][choice * choices(beside.other) + other]
                        : pairs_[beside.costs][other * choices(node) + choice];
}

SplitState SplitNeighbourhoods::state_of(SplitChoices choices) const {
  SplitState made{std::move(choices), 0, {}};
  for (std::uint32_t n = 0; n < own_.size(); ++n) {
    made.cost += own_[n][made.choices[n]];
    for (const Beside& each : beside_[n]) {
      if (each.is_from) made.cost += pair(n, each, made.choices[n], made.choices[each.other]);
    }
  }
  if (table_.limit) made.kept = table_.kept(made.choices);
  return made;
}

std::vector<std::uint32_t> SplitNeighbourhoods::beside(std::uint32_t node) const {
  std::vector<std::uint32_t> others;
  for (const Beside& each : beside_[node]) others.push_back(each.other);
  return others;
}

/// Some nodes, while all others keep their choices.
class SplitNeighbourhoods::Region {
 public:
  Region(const SplitNeighbourhoods& of, SplitState& state, std::span<const std::uint32_t> nodes, const Ask& ask,
         std::mt19937_64& random)
      : of_(of), state_(state), ask_(ask), local_(of.own_.size(), outside), trial_(state.choices) {
    choose(nodes, random);
    if (left_out_ && !ask.may_leave_out) return;
    if (ask.takes_equal) first_ = static_cast<std::ptrdiff_t>(random() % 1024);
    eliminate();
  }

  Found run() {
    if (left_out_ && !ask_.may_leave_out) return {false, false, true};
    const double now = cost_of(state_.choices);
    best_ = now + ask_.slack;
    if (of_.table_.limit) empty_out();
    descend(steps_.size(), least_ - room_by_prices());
    const bool is_whole = !left_out_ && in_vain_ <= ask_.tries;
    if (of_.table_.limit) state_.kept = std::move(kept_before_);
    if (best_choices_.empty()) return {false, is_whole};
    for (const EliminatedNode& step : steps_) keep(step.node, best_choices_[step.node], &state_.choices[step.node]);
    state_.choices = std::move(best_choices_);
    state_.cost += best_ - now;
    return {true, is_whole};
  }

 private:
  static constexpr std::uint32_t outside = UINT32_MAX;

  std::size_t choices(std::uint32_t node) const { return of_.choices(node); }

  /// The order of elimination. Only what elimination would need decides: no table is made.
  void choose(std::span<const std::uint32_t> nodes, std::mt19937_64& random) {
    std::map<std::uint32_t, std::set<std::uint32_t>> beside;
    for (const std::uint32_t n : nodes) local_[n] = 0;
    for (const std::uint32_t n : nodes) {
      std::set<std::uint32_t>& others = beside[n];
      for (const Beside& each : of_.beside_[n]) {
        if (local_[each.other] != outside) others.insert(each.other);
      }
    }
    std::set<std::pair<double, std::uint32_t>> queue;
    std::map<std::uint32_t, double> size;
    const auto queue_again = [&](std::uint32_t n) {
      if (const auto known = size.find(n); known != size.end()) queue.erase({known->second, n});
      double entries = static_cast<double>(choices(n));
      for (const std::uint32_t other : beside[n]) entries *= static_cast<double>(choices(other));
      queue.emplace(size[n] = entries, n);
    };
    for (const std::uint32_t n : nodes) queue_again(n);
    const auto take_out = [&](std::uint32_t n) {
      queue.erase({size[n], n});
      size.erase(n);
      const std::set<std::uint32_t> others = std::move(beside[n]);
      for (const std::uint32_t other : others) beside[other].erase(n);
      return others;
    };
    double all_entries = 0;  // that are kept at a time
    while (!queue.empty()) {
      const auto [entries, node] = *queue.begin();
      if (asks_for_others() && !ask_.may_leave_out) all_entries += entries;
      if (entries > static_cast<double>(ask_.largest) || all_entries > most_entries) {
        if (!ask_.may_leave_out) {
          left_out_ = true;
          return;
        }
        const std::uint32_t out = left_out(queue, beside, random);
        local_[out] = outside;
        left_out_ = true;
        for (const std::uint32_t other : take_out(out)) queue_again(other);
        continue;
      }
      order_.push_back(node);
      const std::set<std::uint32_t> others = take_out(node);
      for (const std::uint32_t one : others) {
        beside[one].insert(others.begin(), others.end());
        beside[one].erase(one);
      }
      for (const std::uint32_t one : others) queue_again(one);
    }
  }

  /// The node with the largest table, or any: but for the one whose choice is forced.
  std::uint32_t left_out(const std::set<std::pair<double, std::uint32_t>>& queue,
                         const std::map<std::uint32_t, std::set<std::uint32_t>>& beside,
                         std::mt19937_64& random) const {
    std::vector<std::uint32_t> nodes;
    for (const auto& [entries, node] : queue) {
      if (!ask_.forced || node != ask_.forced->first) nodes.push_back(node);
    }
    if (random() % 2 == 0) return nodes[random() % nodes.size()];
    return *std::ranges::max_element(nodes, {}, [&](std::uint32_t n) { return beside.at(n).size() * choices(n); });
  }

  /// What a node costs beside those outside.
  std::vector<double> alone(std::uint32_t n) const {
    std::vector<double> costs = ask_.by_prices ? of_.priced_[n] : of_.own_[n];
    for (const Beside& each : of_.beside_[n]) {
      if (local_[each.other] != outside) continue;
      for (std::uint32_t c = 0; c < costs.size(); ++c) costs[c] += of_.pair(n, each, c, state_.choices[each.other]);
    }
    if (ask_.forced && ask_.forced->first == n) {
      for (std::uint32_t c = 0; c < costs.size(); ++c) costs[c] += c == ask_.forced->second ? 0 : never;
    }
    return costs;
  }

  void eliminate() {
    std::vector<Factor> factors;
    std::map<std::uint32_t, std::vector<std::size_t>> of_node;
    const auto add = [&](Factor factor) {
      for (const std::uint32_t n : factor.nodes) of_node[n].push_back(factors.size());
      factors.push_back(std::move(factor));
    };
    for (const std::uint32_t n : order_) {
      add({{n}, alone(n)});
      for (const Beside& each : of_.beside_[n]) {
        if (each.is_from && local_[each.other] != outside) add({{n, each.other}, of_.pairs_[each.costs]});
      }
    }
    for (const std::uint32_t n : order_) {
      std::vector<const Factor*> own;
      EliminatedNode step{n, {}, {}, {}};
      for (const std::size_t f : of_node[n]) {
        if (factors[f].nodes.empty()) continue;
        own.push_back(&factors[f]);
        for (const std::uint32_t other : factors[f].nodes) {
          if (other != n) step.others.push_back(other);
        }
      }
      std::ranges::sort(step.others);
      step.others.erase(std::unique(step.others.begin(), step.others.end()), step.others.end());
      fill(step, own);
      for (const std::size_t f : of_node[n]) factors[f] = {};
      if (step.others.empty()) {
        least_ += step.least.front();
      } else {
        add({step.others, step.least});
      }
      steps_.push_back(std::move(step));
    }
  }

  void fill(EliminatedNode& step, const std::vector<const Factor*>& factors) const {
    std::size_t rows = 1;
    for (const std::uint32_t other : step.others) rows *= choices(other);
    const std::size_t columns = choices(step.node);
    step.costs.assign(rows * columns, 0);
    for (const Factor* factor : factors) add_to(step, *factor, rows);
    step.least.resize(rows);
    step.best.resize(rows);
    for (std::size_t row = 0; row < rows; ++row) {
      const auto begin = step.costs.begin() + static_cast<std::ptrdiff_t>(row * columns);
      const auto least = std::min_element(begin, begin + static_cast<std::ptrdiff_t>(columns));
      step.least[row] = *least;
      step.best[row] = static_cast<std::uint32_t>(least - begin);
    }
    if (!asks_for_others()) step.costs = {};
  }

  /// Whether choices that are not the cheapest may be taken.
  bool asks_for_others() const { return of_.table_.limit || ask_.takes_equal; }

  void add_to(EliminatedNode& step, const Factor& factor, std::size_t rows) const {
    // How far a choice of each of the step's nodes moves on in the factor.
    const auto stride_of = [&](std::uint32_t node) {
      std::size_t stride = 1;
      for (std::size_t k = factor.nodes.size(); k-- > 0;) {
        if (factor.nodes[k] == node) return stride;
        stride *= choices(factor.nodes[k]);
      }
      return std::size_t{0};
    };
    std::vector<std::size_t> strides, at(step.others.size(), 0);
    for (const std::uint32_t other : step.others) strides.push_back(stride_of(other));
    const std::size_t own = stride_of(step.node), columns = choices(step.node);
    std::size_t place = 0;
    for (std::size_t row = 0; row < rows; ++row) {
      for (std::size_t c = 0; c < columns; ++c) step.costs[row * columns + c] += factor.costs[place + c * own];
      for (std::size_t k = step.others.size(); k-- > 0;) {
        place += strides[k];
        if (++at[k] < choices(step.others[k])) break;
        place -= at[k] * strides[k];
        at[k] = 0;
      }
    }
  }

  /// Of the region, with what is beside it.
  double cost_of(const SplitChoices& choices) const {
    double sum = 0;
    for (const std::uint32_t n : order_) {
      sum += of_.own_[n][choices[n]];
      for (const Beside& each : of_.beside_[n]) {
        if (local_[each.other] == outside || each.is_from) sum += of_.pair(n, each, choices[n], choices[each.other]);
      }
    }
    return sum;
  }

  /// What the bytes cost that the region may keep, once it is emptied out: what fits costs no less than its priced
  /// costs less this.
  double room_by_prices() const {
    if (!ask_.by_prices) return 0;
    std::vector<Bytes> least(of_.table_.moments);
    for (const std::uint32_t n : order_) {
      for (const SplitTable::Held& held : of_.table_.held[n]) {
        const Bytes own = *std::ranges::min_element(*held.bytes);
        for (std::uint32_t m = held.from; m < held.to; ++m) least[m] += own;
      }
    }
    double sum = 0;
    for (std::size_t m = 0; m < least.size(); ++m) {
      sum += of_.prices_[m] * static_cast<double>((*of_.table_.limit - (state_.kept[m] - least[m])).count);
    }
    return sum;
  }

  /// Of the region's nodes only the least that they can keep stays in the sums.
  void empty_out() {
    kept_before_ = state_.kept;
    for (const std::uint32_t n : order_) {
      for (const SplitTable::Held& held : of_.table_.held[n]) {
        add(held, *std::ranges::min_element(*held.bytes) - (*held.bytes)[state_.choices[n]]);
      }
    }
  }

  void add(const SplitTable::Held& held, Bytes more) {
    if (more == Bytes{0}) return;
    for (std::uint32_t m = held.from; m < held.to; ++m) state_.kept[m] += more;
  }

  bool fits(std::uint32_t node) const {
    for (const SplitTable::Held& held : of_.table_.held[node]) {
      for (std::uint32_t m = held.from; m < held.to; ++m) {
        if (state_.kept[m] > *of_.table_.limit) return false;
      }
    }
    return true;
  }

  /// The node keeps what this choice does, in place of what another one does, or of the least.
  void keep(std::uint32_t node, std::uint32_t choice, const std::uint32_t* before) {
    if (!of_.table_.limit) return;
    for (const SplitTable::Held& held : of_.table_.held[node]) {
      const Bytes old = before != nullptr ? (*held.bytes)[*before] : *std::ranges::min_element(*held.bytes);
      add(held, (*held.bytes)[choice] - old);
    }
  }
  void keep_least(std::uint32_t node, std::uint32_t choice) {
    for (const SplitTable::Held& held : of_.table_.held[node]) {
      add(held, *std::ranges::min_element(*held.bytes) - (*held.bytes)[choice]);
    }
  }

  /// Whether what costs at least so much may be taken.
  bool is_worth(double bound) const {
    if (ask_.takes_equal && best_choices_.empty()) return bound <= best_;
    return std::isinf(best_) || bound < best_ - sum_tolerance * std::abs(best_);
  }

  /// Chooses for the nodes of the first `steps` steps, the last of them first; nothing of them costs less than `bound`.
  void descend(std::size_t steps, double bound) {
    if (steps == 0) {
      const double cost = ask_.by_prices ? cost_of(trial_) : bound;
      if (trial_ == state_.choices || !is_worth(cost)) return;
      best_ = cost;
      best_choices_ = trial_;
      return;
    }
    const EliminatedNode& step = steps_[steps - 1];
    std::size_t row = 0;
    for (const std::uint32_t other : step.others) row = row * choices(other) + trial_[other];
    if (step.costs.empty()) {
      trial_[step.node] = step.best[row];
      return descend(steps - 1, bound);
    }
    const double* costs = &step.costs[row * choices(step.node)];
    std::vector<std::uint32_t> cheapest(choices(step.node));
    std::iota(cheapest.begin(), cheapest.end(), 0U);
    std::rotate(cheapest.begin(), cheapest.begin() + first_ % static_cast<std::ptrdiff_t>(cheapest.size()),
                cheapest.end());
    std::ranges::stable_sort(cheapest, {}, [&](std::uint32_t c) { return costs[c]; });
    for (const std::uint32_t c : cheapest) {
      const double with = bound + (costs[c] - step.least[row]);
      if (!is_worth(with) || in_vain_ > ask_.tries) return;
      trial_[step.node] = c;
      if (!of_.table_.limit) return descend(steps - 1, with);  // no other choice costs less
      keep(step.node, c, nullptr);
      if (fits(step.node)) {
        descend(steps - 1, with);
      } else {
        ++in_vain_;
      }
      keep_least(step.node, c);
    }
    ++in_vain_;
  }

  static constexpr double never = 1e300, most_entries = 3e7;

  const SplitNeighbourhoods& of_;
  SplitState& state_;
  const Ask& ask_;
  std::vector<std::uint32_t> local_;  // by node: outside, or not
  std::vector<std::uint32_t> order_;
  std::vector<EliminatedNode> steps_;
  double least_ = 0;  // what the region costs at least
  bool left_out_ = false;
  SplitChoices trial_, best_choices_;
  double best_ = 0;
  std::vector<Bytes> kept_before_;
  std::uint64_t in_vain_ = 0;
  std::ptrdiff_t first_ = 0;  // among choices that cost the same
};

SplitNeighbourhoods::Found SplitNeighbourhoods::improve(SplitState& state, std::span<const std::uint32_t> nodes,
                                                        const Ask& ask, std::mt19937_64& random) const {
  return Region(*this, state, nodes, ask, random).run();
}

std::optional<EliminatedSplit> eliminated(const SplitTable& table, std::size_t largest, std::uint64_t tries,
                                          double weight) {
  const SplitNeighbourhoods all(table, weight);
  SplitState state = all.state_of(SplitChoices(table.nodes.size(), 0));
  const bool is_fine = state.cost < all.barrier() && table.keeps_limit(state.choices);
  std::vector<std::uint32_t> nodes(table.nodes.size());
  std::iota(nodes.begin(), nodes.end(), 0U);
  std::mt19937_64 random(1);
  SplitNeighbourhoods::Ask ask{.largest = largest, .tries = tries, .may_leave_out = false};
  if (!is_fine) ask.slack = std::numeric_limits<double>::infinity();
  const SplitNeighbourhoods::Found found = all.improve(state, nodes, ask, random);
  if (found.is_too_large) return std::nullopt;
  const bool fits = state.cost < all.barrier() && table.keeps_limit(state.choices);
  return EliminatedSplit{std::move(state.choices), fits, found.is_whole};
}

}  // namespace plimsoll
