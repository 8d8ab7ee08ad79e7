#include "strategies/hybrid/split_improvement.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>

#include "strategies/hybrid/elimination.h"
#include "strategies/hybrid/reduced_splits.h"
#include "strategies/hybrid/split_messages.h"

namespace plimsoll {
namespace {

constexpr std::size_t largest_table = 100'000;
constexpr std::uint64_t most_tries = 3000;

bool is_over(const Deadline* deadline) {
  return deadline != nullptr && deadline->passed();
}

class Improvement {
 public:
  Improvement(const SplitTable& table, std::uint64_t seed) : around_(table, 1), random_(seed) {}

  /// As many nodes as asked, each beside one before it, but for a few at the same moments as the first.
  std::vector<std::uint32_t> nodes_around(std::uint32_t first, std::size_t count, bool with_others) {
    std::vector<std::uint32_t> made, next{first};
    std::set<std::uint32_t> seen{first};
    for (int k = 0; k < 3 && with_others; ++k) {
      const std::uint32_t other = any_node();
      if (are_held_together(first, other) && seen.insert(other).second) next.push_back(other);
    }
    while (made.size() < count && !next.empty()) {
      const std::size_t at = made.empty() ? 0 : random_() % next.size();
      made.push_back(next[at]);
      next[at] = next.back();
      next.pop_back();
      for (const std::uint32_t other : around_.beside(made.back())) {
        if (seen.insert(other).second) next.push_back(other);
      }
    }
    return made;
  }

  SplitState run(SplitState state, std::uint64_t rounds, const Deadline* deadline) {
    constexpr double temperature = 0.1, too_far = 3;
    constexpr int coolings = 4;
    SplitState best = state;
    for (std::uint64_t k = 0; k < rounds && !is_over(deadline); ++k) {
      const double done = static_cast<double>(k) / static_cast<double>(rounds) * coolings;
      round(state, temperature * (1 - (done - std::floor(done))));
      if (state.cost < best.cost * (1 - 1e-12)) best = state;
      if (state.cost > best.cost * too_far) state = best;
    }
    return best;
  }

  /// Regions are searched by the prices of what they keep from now on.
  void set_prices(std::vector<double> prices) {
    by_prices_ = std::ranges::any_of(prices, [](double price) { return price > 0; });
    if (by_prices_) around_.set_prices(std::move(prices));
  }

  const SplitNeighbourhoods& around() const { return around_; }
  std::mt19937_64& random() { return random_; }
  std::uint32_t any_node() { return static_cast<std::uint32_t>(random_() % around_.table().nodes.size()); }

 private:
  void round(SplitState& state, double temperature) {
    const std::uint32_t node = any_node();
    const auto choices = static_cast<std::uint32_t>(around_.table().choices(node).size());
    SplitNeighbourhoods::Ask ask{
        .largest = largest_table, .tries = most_tries, .takes_equal = true, .by_prices = by_prices_};
    if (choices > 1 && random_() % 3 > 0) {
      std::uint32_t other = static_cast<std::uint32_t>(random_() % (choices - 1));
      if (other >= state.choices[node]) ++other;
      ask.forced = {node, other};
      const double from_0_to_1 = static_cast<double>(random_() % 1'000'000 + 1) / 1e6;
      ask.slack = -std::log(from_0_to_1) * temperature * state.cost;
    }
    const std::size_t count = 3 + random_() % 80;
    around_.improve(state, nodes_around(node, count, random_() % 2 == 0), ask, random_);
  }

  bool are_held_together(std::uint32_t one, std::uint32_t other) const {
    if (!around_.table().limit) return false;
    for (const SplitTable::Held& a : around_.table().held[one]) {
      for (const SplitTable::Held& b : around_.table().held[other]) {
        if (a.from < b.to && b.from < a.to) return true;
      }
    }
    return false;
  }

  SplitNeighbourhoods around_;
  std::mt19937_64 random_;
  bool by_prices_ = false;
};

/// The same choices and pairs, of which each costs what it keeps.
SplitTable by_memory(const SplitTable& table) {
  constexpr double per_byte = 1e-9;
  SplitTable made;
  made.forbidden = Seconds{1};
  made.edges_of = table.edges_of;
  for (std::uint32_t n = 0; n < table.nodes.size(); ++n) {
    std::vector<SplitTable::Choice> choices(table.choices(n).size());
    double most = 0;
    for (const SplitTable::Held& held : table.held[n]) {
      for (std::size_t c = 0; c < choices.size(); ++c) {
        choices[c].seconds += Seconds{per_byte * (held.to - held.from) * static_cast<double>((*held.bytes)[c].count)};
        most = std::max(most, choices[c].seconds.value);
      }
    }
    made.forbidden = std::max(made.forbidden, Seconds{2 * most});
    made.nodes.push_back(std::make_shared<const std::vector<SplitTable::Choice>>(std::move(choices)));
  }
  for (const SplitTable::Edge& edge : table.edges) {
    std::vector<Seconds> seconds;
    for (const Seconds each : *edge.seconds) {
      seconds.push_back(each < table.forbidden ? Seconds{} : made.forbidden);
    }
    made.edges.push_back({edge.from, edge.to, std::make_shared<const std::vector<Seconds>>(std::move(seconds))});
  }
  return made;
}

/// Whether they can be together.
bool can_be(const SplitNeighbourhoods& around, const SplitState& state) {
  return state.cost < around.barrier();
}

}  // namespace

SplitChoices least_kept(const SplitTable& table, const SplitChoices& start, std::uint64_t seed,
                        const Deadline* deadline) {
  constexpr std::uint64_t rounds = 2000;
  constexpr std::size_t count = 60;
  const SplitTable memory = by_memory(table);
  Improvement search(memory, seed);
  SplitState state = search.around().state_of(start);
  const SplitNeighbourhoods::Ask ask{.largest = largest_table, .tries = most_tries, .takes_equal = true};
  for (std::uint64_t k = 0; k < rounds && !is_over(deadline); ++k) {
    if (table.limit && can_be(search.around(), state) && table.keeps_limit(state.choices)) break;
    search.around().improve(state, search.nodes_around(search.any_node(), count, false), ask, search.random());
  }
  return std::move(state.choices);
}

ImprovedSplit improved(const SplitTable& whole, const SplitChoices& start, const SplitEffort& effort, double weight) {
  const std::optional<ReducedSplits> reduced = ReducedSplits::of(whole, weight);
  if (!reduced) return {least_kept(whole, start, effort.seed, effort.deadline), 0, false, true, 0};
  const SplitTable& table = reduced->table();
  Improvement search(table, effort.seed);
  std::optional<SplitChoices> begin = reduced->reduced(start);
  if (!begin) begin = SplitChoices(table.nodes.size(), 0);
  SplitState state = search.around().state_of(std::move(*begin));
  const auto fits = [&](const SplitState& each) {
    return can_be(search.around(), each) && table.keeps_limit(each.choices);
  };
  if (!fits(state)) state = search.around().state_of(least_kept(table, state.choices, effort.seed, effort.deadline));
  MessagedSplit by_messages =
      pass_messages(table, fits(state) ? state.cost : search.around().barrier(), effort.rounds, effort.deadline);
  if (by_messages.choices) state = search.around().state_of(std::move(*by_messages.choices));
  constexpr double nearly = 1e-9;
  const bool is_proven = fits(state) && state.cost <= by_messages.bound * (1 + nearly);
  search.set_prices(std::move(by_messages.prices));
  if (fits(state) && !is_proven) state = search.run(std::move(state), effort.rounds, effort.deadline);
  const double cost = search.around().state_of(state.choices).cost;
  return {reduced->whole(state.choices), cost, fits(state), false, std::min(by_messages.bound, cost)};
}

}  // namespace plimsoll
