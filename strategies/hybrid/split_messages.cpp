#include "strategies/hybrid/split_messages.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace plimsoll {
namespace {

class Messages {
 public:
  Messages(const SplitTable& table, double known)
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
    constexpr double nearly = 1e-9;
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
        if (found_.cost <= found_.bound + nearly * std::abs(found_.bound)) return std::move(found_);
        if (table_.limit && k >= before_prices) price_anew(std::abs(bound));
      }
      const bool rises = found_.bound > before + nearly * std::abs(before);
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

}  // namespace

MessagedSplit pass_messages(const SplitTable& table, double known, std::uint64_t rounds, const Deadline* deadline) {
  return Messages(table, known).run(rounds, deadline);
}

}  // namespace plimsoll
