#include "strategies/hybrid/reduced_splits.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

namespace plimsoll {

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

}  // namespace plimsoll
