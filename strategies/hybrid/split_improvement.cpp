#include "strategies/hybrid/split_improvement.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <utility>

#include "sim/core/tolerance.h"
#include "strategies/hybrid/elimination.h"

namespace plimsoll {
namespace {

class SplitMessages {
 public:
  SplitMessages(const SplitTable& table, double known)
      : table_(table), known_(known), earlier_(table.nodes.size()), later_(table.nodes.size()) {
    for (std::uint32_t n = 0; n < table.nodes.size(); ++n) {
      std::vector<double>& own = own_.emplace_back();
      for (const SplitTable::Choice& choice : table.choices(n)) {
        own.push_back(std::min((choice.seconds + choice.sums).value, known));
      }
    }
    for (const SplitTable::Edge& edge : table.edges) {
      later_[edge.from].push_back(static_cast<std::uint32_t>(edges_.size()));
      earlier_[edge.to].push_back(static_cast<std::uint32_t>(edges_.size()));
      Edge& made = edges_.emplace_back(Edge{edge.from, edge.to, {}, {}, {}});
      for (const Seconds each : *edge.seconds) made.costs.push_back(std::min(each.value, known));
      made.there.resize(own_[edge.to].size());
      made.back.resize(own_[edge.from].size());
    }
    priced_ = own_;
    choices_.resize(own_.size());
    found_.prices.resize(table.limit ? table.moments : 0);
    prices_ = found_.prices;
    found_.cost = std::numeric_limits<double>::infinity();
  }

  MessagedSplit run(std::uint64_t rounds, const Deadline* deadline) {
    constexpr std::uint64_t before_prices = 20, most_in_vain = 100;
    std::uint64_t in_vain = 0;
    for (std::uint64_t k = 0; k < rounds && in_vain < most_in_vain; ++k) {
      if (deadline != nullptr && deadline->passed()) break;
      const double before = found_.bound;
      for (const bool there : {true, false}) {
        const double bound = pass(there) - price_of_limit();
        if (bound > found_.bound) {
          found_.bound = bound;
          found_.prices = prices_;
        }
        keep_if_better();
        if (found_.cost <= found_.bound + model_tolerance * std::abs(found_.bound)) return std::move(found_);
        if (table_.limit && k >= before_prices) price_anew(std::abs(bound));
      }
      const bool rises = found_.bound > before + model_tolerance * std::abs(before);
      in_vain = rises || is_priced_ ? 0 : in_vain + 1;
    }
    return std::move(found_);
  }

 private:
  struct Edge {
    std::uint32_t from, to;
    std::vector<double> costs;        ///< [choice of from][choice of to]
    std::vector<double> there, back;  ///< messages: by choice of `to`, and of `from`
  };

  /// Through all nodes in their order or against it, choosing for each what is cheapest beside what was chosen. The
  /// bound by the prices.
  double pass(bool there) {
    double bound = 0;
    std::vector<double> all, beside;
    for (std::size_t k = 0; k < own_.size(); ++k) {
      const std::size_t n = there ? k : own_.size() - 1 - k;
      const std::vector<std::uint32_t>&behind = there ? earlier_[n] : later_[n],
            &ahead = there ? later_[n] : earlier_[n];
      all = beside = priced_[n];
      for (const std::uint32_t e : ahead) {
        const std::vector<double>& message = there ? edges_[e].back : edges_[e].there;
        for (std::size_t c = 0; c < all.size(); ++c) {
          all[c] += message[c];
          beside[c] += message[c];
        }
      }
      for (const std::uint32_t e : behind) {
        const Edge& edge = edges_[e];
        const std::vector<double>& message = there ? edge.there : edge.back;
        const std::size_t columns = own_[edge.to].size();
        for (std::size_t c = 0; c < all.size(); ++c) {
          all[c] += message[c];
          beside[c] +=
              there ? edge.costs[choices_[edge.from] * columns + c] : edge.costs[c * columns + choices_[edge.to]];
        }
      }
      choices_[n] = static_cast<std::uint32_t>(std::ranges::min_element(beside) - beside.begin());
      bound += less_the_least(all);
      const double share = 1.0 / static_cast<double>(std::max<std::size_t>({behind.size(), ahead.size(), 1}));
      for (const std::uint32_t e : ahead)
        bound += there ? send_there(edges_[e], all, share) : send_back(edges_[e], all, share);
    }
    return bound;
  }

  static double less_the_least(std::vector<double>& costs) {
    const double least = *std::ranges::min_element(costs);
    for (double& cost : costs) cost -= least;
    return least;
  }

  static double send_there(Edge& edge, const std::vector<double>& all, double share) {
    const std::size_t columns = edge.there.size();
    std::ranges::fill(edge.there, std::numeric_limits<double>::infinity());
    for (std::size_t a = 0; a < all.size(); ++a) {
      const double own = share * all[a] - edge.back[a];
      for (std::size_t b = 0; b < columns; ++b) {
        edge.there[b] = std::min(edge.there[b], own + edge.costs[a * columns + b]);
      }
    }
    return less_the_least(edge.there);
  }

  static double send_back(Edge& edge, const std::vector<double>& all, double share) {
    const std::size_t columns = all.size();
    for (std::size_t a = 0; a < edge.back.size(); ++a) {
      double least = std::numeric_limits<double>::infinity();
      for (std::size_t b = 0; b < columns; ++b) {
        least = std::min(least, share * all[b] - edge.there[b] + edge.costs[a * columns + b]);
      }
      edge.back[a] = least;
    }
    return less_the_least(edge.back);
  }

  double price_of_limit() const {
    double sum = 0;
    for (const double price : prices_) sum += price * static_cast<double>(table_.limit->count);
    return sum;
  }

  void keep_if_better() {
    const double cost = table_.priced(choices_).value;
    if (!(cost < found_.cost) || !(cost <= known_) || !can_be() || !table_.keeps_limit(choices_)) return;
    found_.cost = cost;
    found_.choices = choices_;
  }

  bool can_be() const {
    for (std::size_t n = 0; n < choices_.size(); ++n) {
      if (!(table_.choices(n)[choices_[n]].seconds < table_.forbidden)) return false;
    }
    return std::ranges::all_of(table_.edges, [&](const SplitTable::Edge& edge) {
      return table_.of_edge(edge, choices_[edge.from], choices_[edge.to]) < table_.forbidden;
    });
  }

  /// A step along what the choices hold beyond the limit, a little shorter each time.
  void price_anew(double bound) {
    constexpr double shorter = 0.999;
    const std::vector<Bytes> kept = table_.kept(choices_);
    const auto beyond = [&](std::size_t m) { return static_cast<double>((kept[m] - *table_.limit).count); };
    double squares = 0;
    for (std::size_t m = 0; m < kept.size(); ++m) {
      if (beyond(m) > 0 || prices_[m] > 0) squares += beyond(m) * beyond(m);
    }
    if (squares == 0) return;
    is_priced_ = true;
    for (std::size_t m = 0; m < kept.size(); ++m) {
      prices_[m] = std::max(0.0, prices_[m] + step_ * bound / squares * beyond(m));
    }
    step_ *= shorter;
    std::vector<double> until(prices_.size() + 1, 0);  // of a byte from the first moment on
    for (std::size_t m = 0; m < prices_.size(); ++m) until[m + 1] = until[m] + prices_[m];
    priced_ = own_;
    for (std::size_t n = 0; n < own_.size(); ++n) {
      for (const SplitTable::Held& held : table_.held[n]) {
        const double price = until[held.to] - until[held.from];
        for (std::size_t c = 0; c < own_[n].size(); ++c) {
          priced_[n][c] += price * static_cast<double>((*held.bytes)[c].count);
        }
      }
    }
  }

  const SplitTable& table_;
  double known_;
  std::vector<std::vector<double>> own_, priced_;  // by node; with the prices of what it keeps
  std::vector<Edge> edges_;
  std::vector<std::vector<std::uint32_t>> earlier_, later_;  // by node: edges to nodes before and behind it
  SplitChoices choices_;
  std::vector<double> prices_;  // by moment
  double step_ = 0.005;         // a share of the bound
  bool is_priced_ = false;
  MessagedSplit found_;
};

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
      if (is_below(state.cost, best.cost)) best = state;
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

class ReducedSplits::Reduction {
 public:
  Reduction(const SplitTable& table, double weight) : of_(table), gone_(table.nodes.size()), nodes_(gone_.size()) {
    for (std::uint32_t n = 0; n < nodes_.size(); ++n) {
      for (const SplitTable::Choice& choice : table.choices(n)) {
        nodes_[n].costs.push_back((choice.seconds + weight * choice.sums).value);
      }
      gone_[n].node = n;
      gone_[n].choices.resize(nodes_[n].costs.size());
      std::iota(gone_[n].choices.begin(), gone_[n].choices.end(), 0U);
      if (!table.limit) continue;
      for (const SplitTable::Held& held : table.held[n]) {
        if (held.to > held.from) nodes_[n].held.push_back({held.from, held.to, *held.bytes});
      }
    }
    for (const SplitTable::Edge& edge : table.edges) {
      const std::size_t rows = table.choices(edge.from).size(), columns = table.choices(edge.to).size();
      std::vector<double>&along = nodes_[edge.from].beside[edge.to], &back = nodes_[edge.to].beside[edge.from];
      along.resize(rows * columns);
      back.resize(rows * columns);
      for (std::size_t a = 0; a < rows; ++a) {
        for (std::size_t b = 0; b < columns; ++b) {
          back[b * rows + a] = along[a * columns + b] = (*edge.seconds)[a * columns + b].value;
        }
      }
    }
  }

  std::optional<ReducedSplits> run() {
    for (bool changes = true; changes;) {
      changes = false;
      for (std::uint32_t n = 0; n < nodes_.size(); ++n) changes |= !nodes_[n].joined && drop_those_without_partner(n);
      if (of_.limit) changes |= drop_those_too_large();
      if (has_none_) return std::nullopt;
      if (changes) continue;
      for (std::uint32_t n = 0; n < nodes_.size(); ++n) changes |= !nodes_[n].joined && join_one(n);
    }
    return made();
  }

 private:
  struct Kept {
    std::uint32_t from, to;
    std::vector<Bytes> bytes;
  };
  struct Node {
    std::vector<double> costs;
    std::vector<Kept> held;
    std::map<std::uint32_t, std::vector<double>> beside;  // by neighbour: [own choice][its choice]
    bool joined = false;                                  // to another
  };

  bool can_be(double cost) const { return cost < of_.forbidden.value; }

  bool drop_those_without_partner(std::uint32_t n) {
    Node& node = nodes_[n];
    std::vector<bool> stays(node.costs.size());
    for (std::size_t c = 0; c < stays.size(); ++c) {
      stays[c] = can_be(node.costs[c]);
      for (const auto& [other, costs] : node.beside) {
        const auto row = costs.begin() + static_cast<std::ptrdiff_t>(c * nodes_[other].costs.size());
        const auto end = row + static_cast<std::ptrdiff_t>(nodes_[other].costs.size());
        stays[c] = stays[c] && std::any_of(row, end, [&](double cost) { return can_be(cost); });
      }
    }
    return keep_only(n, stays);
  }

  /// Beside the least of all others.
  bool drop_those_too_large() {
    std::vector<Bytes> least(of_.moments);
    for (const Node& node : nodes_) {
      for (const Kept& held : node.held) {
        for (std::uint32_t m = held.from; m < held.to; ++m) least[m] += *std::ranges::min_element(held.bytes);
      }
    }
    bool changes = false;
    for (std::uint32_t n = 0; n < nodes_.size(); ++n) {
      std::vector<bool> stays(nodes_[n].costs.size(), true);
      for (const Kept& held : nodes_[n].held) {
        const Bytes most = *std::max_element(least.begin() + held.from, least.begin() + held.to);
        const Bytes own = *std::ranges::min_element(held.bytes);
        for (std::size_t c = 0; c < stays.size(); ++c) {
          if (most + (held.bytes[c] - own) > *of_.limit) stays[c] = false;
        }
      }
      changes |= keep_only(n, stays);
      if (has_none_) return changes;
    }
    return changes;
  }

  template <class Value>
  static void keep_of(std::vector<Value>& values, const std::vector<bool>& stays) {
    std::size_t next = 0;
    for (std::size_t k = 0; k < values.size(); ++k) {
      if (stays[k]) values[next++] = values[k];
    }
    values.resize(next);
  }

  bool keep_only(std::uint32_t n, const std::vector<bool>& stays) {
    if (std::ranges::find(stays, false) == stays.end()) return false;
    has_none_ = has_none_ || std::ranges::find(stays, true) == stays.end();
    Node& node = nodes_[n];
    for (auto& [other, costs] : node.beside) {
      const std::size_t own = stays.size(), others = nodes_[other].costs.size();
      std::vector<bool> along, back;
      for (std::size_t a = 0; a < own; ++a) along.insert(along.end(), others, stays[a]);
      for (std::size_t b = 0; b < others; ++b) back.insert(back.end(), stays.begin(), stays.end());
      keep_of(costs, along);
      keep_of(nodes_[other].beside.at(n), back);
    }
    keep_of(node.costs, stays);
    for (Kept& held : node.held) keep_of(held.bytes, stays);
    for (Gone& gone : gone_) {
      if (gone.node == n) keep_of(gone.choices, stays);
    }
    return true;
  }

  /// A neighbour of which each choice of the node leaves one.
  bool join_one(std::uint32_t n) {
    for (const auto& [other, costs] : nodes_[n].beside) {
      std::vector<std::uint32_t> follows;
      const std::size_t others = nodes_[other].costs.size();
      for (std::size_t c = 0; c < nodes_[n].costs.size(); ++c) {
        std::uint32_t partners = 0, last = 0;
        for (std::uint32_t d = 0; d < others; ++d) {
          if (!can_be(costs[c * others + d])) continue;
          ++partners;
          last = d;
        }
        if (partners != 1) break;
        follows.push_back(last);
      }
      if (follows.size() < nodes_[n].costs.size()) continue;
      join(n, other, follows);
      return true;
    }
    return false;
  }

  void join(std::uint32_t n, std::uint32_t other, const std::vector<std::uint32_t>& follows) {
    Node &node = nodes_[n], &gone = nodes_[other];
    const std::vector<double> between = node.beside.at(other);
    for (std::size_t c = 0; c < follows.size(); ++c) {
      node.costs[c] += gone.costs[follows[c]] + between[c * gone.costs.size() + follows[c]];
    }
    for (const Kept& held : gone.held) {
      std::vector<Bytes> bytes;
      for (const std::uint32_t f : follows) bytes.push_back(held.bytes[f]);
      node.held.push_back({held.from, held.to, std::move(bytes)});
    }
    for (const auto& [third, costs] : gone.beside) {
      nodes_[third].beside.erase(other);
      if (third == n) continue;
      const std::size_t own = follows.size(), others = nodes_[third].costs.size();
      std::vector<double>&along = node.beside[third], &back = nodes_[third].beside[n];
      along.resize(own * others);
      back.resize(own * others);
      for (std::size_t a = 0; a < own; ++a) {
        for (std::size_t b = 0; b < others; ++b) {
          along[a * others + b] += costs[follows[a] * others + b];
          back[b * own + a] = along[a * others + b];
        }
      }
    }
    for (Gone& each : gone_) {
      if (each.node != other) continue;
      std::vector<std::uint32_t> choices;
      for (const std::uint32_t f : follows) choices.push_back(each.choices[f]);
      each = {n, std::move(choices)};
    }
    gone = {};
    gone.joined = true;
  }

  ReducedSplits made() const {
    ReducedSplits result;
    SplitTable& table = result.table_;
    table.limit = of_.limit;
    table.moments = of_.moments;
    table.forbidden = of_.forbidden;
    std::vector<std::uint32_t> number(nodes_.size());
    for (std::uint32_t n = 0; n < nodes_.size(); ++n) {
      if (nodes_[n].joined) continue;
      number[n] = static_cast<std::uint32_t>(table.nodes.size());
      std::vector<SplitTable::Choice> choices;
      for (const double cost : nodes_[n].costs) choices.push_back({{}, Seconds{cost}, {}});
      table.nodes.push_back(std::make_shared<const std::vector<SplitTable::Choice>>(std::move(choices)));
      table.edges_of.emplace_back();
      std::vector<SplitTable::Held>& held = table.held.emplace_back();
      for (const Kept& each : nodes_[n].held) {
        held.push_back({each.from, each.to, std::make_shared<const std::vector<Bytes>>(each.bytes)});
      }
      for (const auto& [other, costs] : nodes_[n].beside) {
        if (other > n) continue;  // the row-major table of the pair, from < to
        std::vector<Seconds> seconds;
        for (const double cost : nodes_[other].beside.at(n)) seconds.push_back({cost});
        const auto edge = static_cast<std::uint32_t>(table.edges.size());
        table.edges_of[number[n]].push_back(edge);
        table.edges_of[number[other]].push_back(edge);
        table.edges.push_back(
            {number[other], number[n], std::make_shared<const std::vector<Seconds>>(std::move(seconds))});
      }
    }
    result.gone_ = gone_;
    for (Gone& gone : result.gone_) gone.node = number[gone.node];
    return result;
  }

  const SplitTable& of_;
  std::vector<Gone> gone_;
  std::vector<Node> nodes_;
  bool has_none_ = false;
};

std::optional<ReducedSplits> ReducedSplits::of(const SplitTable& table, double weight) {
  return Reduction(table, weight).run();
}

SplitChoices ReducedSplits::whole(const SplitChoices& of_reduced) const {
  SplitChoices made;
  for (const Gone& gone : gone_) made.push_back(gone.choices[of_reduced[gone.node]]);
  return made;
}

std::optional<SplitChoices> ReducedSplits::reduced(const SplitChoices& of_whole) const {
  SplitChoices made(table_.nodes.size(), UINT32_MAX);
  for (std::size_t n = 0; n < gone_.size(); ++n) {
    std::uint32_t& choice = made[gone_[n].node];
    if (choice == UINT32_MAX) {
      // Nodes that are joined say together which of the choices it is.
      for (std::uint32_t c = 0; c < table_.choices(gone_[n].node).size() && choice == UINT32_MAX; ++c) {
        bool is_it = true;
        for (std::size_t other = n; other < gone_.size() && is_it; ++other) {
          is_it = gone_[other].node != gone_[n].node || gone_[other].choices[c] == of_whole[other];
        }
        if (is_it) choice = c;
      }
    }
    if (choice == UINT32_MAX) return std::nullopt;
  }
  return made;
}

MessagedSplit pass_messages(const SplitTable& table, double known, std::uint64_t rounds, const Deadline* deadline) {
  return SplitMessages(table, known).run(rounds, deadline);
}

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
  const bool is_proven = fits(state) && state.cost <= by_messages.bound * (1 + model_tolerance);
  search.set_prices(std::move(by_messages.prices));
  if (fits(state) && !is_proven) state = search.run(std::move(state), effort.rounds, effort.deadline);
  const double cost = search.around().state_of(state.choices).cost;
  return {reduced->whole(state.choices), cost, fits(state), false, std::min(by_messages.bound, cost)};
}

}  // namespace plimsoll
