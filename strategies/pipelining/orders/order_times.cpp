#include "strategies/pipelining/orders/order_times.h"

#include <algorithm>
#include <cmath>

#include "sim/core/expects.h"
#include "sim/core/tolerance.h"

namespace plimsoll {
namespace {

constexpr double not_made = -1;

/// What has been made so far.
class OrderClock {
 public:
  OrderClock(const PartCosts& costs, std::uint32_t m, const PipelineOrder& order, TransferTimes transfers)
      : costs_(costs),
        order_(order),
        transfers_(transfers),
        m_(m),
        made_(order.turns.size(), 0),
        now_(made_.size(), 0),
        first_(made_.size(), not_made),
        forward_(costs.parts() * m, not_made),
        arrived_(2 * costs.parts() * m, not_made),
        links_(made_.size()) {}

  OrderTimes run() {
    bool any = true;
    while (any) {
      any = false;
      for (std::size_t r = 0; r < made_.size(); ++r) {
        while (made_[r] < order_.turns[r].size() && take(r, order_.turns[r][made_[r]])) {
          ++made_[r];
          any = true;
        }
      }
    }
    OrderTimes times;
    for (std::size_t r = 0; r < made_.size(); ++r) {
      times.first.push_back(std::max(first_[r], 0.0));
      times.last.push_back(now_[r]);
      if (made_[r] < order_.turns[r].size()) times.stuck.push_back(order_.turns[r][made_[r]]);
    }
    return times;
  }

 private:
  struct Link {
    std::uint32_t to;
    double free;  // when
  };

  std::size_t at(std::size_t part, std::uint32_t i) const { return part * m_ + i; }

  /// Whether what the turn reads has been made; if so the rank takes it.
  bool take(std::size_t r, const Turn& turn) {
    const std::size_t g = turn.part.index, last = costs_.parts() - 1;
    const std::size_t here = at(g, turn.micro_batch), back = forward_.size() + here;
    if (turn.piece == piece::weights) {
      EXPECTS(order_.weights_apart);
      spend(r, 0, costs_.w[g]);
      return true;
    }
    const bool is_forward = turn.piece == piece::forward;
    if (!is_forward && forward_[here] == not_made) return false;
    double ready = 0;
    if (is_forward ? g > 0 : g < last) {
      ready = arrived_[is_forward ? here : back];
      if (ready == not_made) return false;
    }
    if (is_forward) {
      spend(r, ready, costs_.f[g]);
      forward_[here] = now_[r];
      if (g < last) send(r, g, here + m_, 0);
    } else {
      spend(r, ready, order_.weights_apart ? costs_.b[g] : costs_.b[g] + costs_.w[g]);
      if (g > 0) send(r, g - 1, back - m_, 1);
    }
    return true;
  }

  void spend(std::size_t r, double ready, double cost) {
    const double start = std::max(ready, now_[r]);
    if (first_[r] == not_made) first_[r] = start;
    now_[r] = start + cost;
  }

  /// Over the boundary between parts g and g + 1.
  void send(std::size_t r, std::size_t g, std::size_t to, std::size_t backwards) {
    const std::uint32_t receiver = order_.rank_of[backwards == 1 ? g : g + 1];
    if (receiver == r) {
      arrived_[to] = now_[r];
      return;
    }
    const double takes = (backwards == 1 ? costs_.returned : costs_.sent)[g];
    if (transfers_ == TransferTimes::alone) {
      arrived_[to] = now_[r] + takes;
      return;
    }
    double& free = link_of(r, receiver);
    free = std::max(free, now_[r]) + takes;
    arrived_[to] = free;
  }

  double& link_of(std::size_t from, std::uint32_t to) {
    for (Link& link : links_[from]) {
      if (link.to == to) return link.free;
    }
    return links_[from].emplace_back(Link{to, 0}).free;
  }

  const PartCosts& costs_;
  const PipelineOrder& order_;
  TransferTimes transfers_;
  std::size_t m_;
  std::vector<std::size_t> made_;
  std::vector<double> now_, first_, forward_, arrived_;  // arrived: at forwards, then at backwards
  std::vector<std::vector<Link>> links_;                 // by rank that sends
};

/// Calls `after(rank, turn)` for each turn in its rank's order.
template <typename Function>
void each_turn(const PipelineOrder& order, Function after) {
  for (std::size_t r = 0; r < order.turns.size(); ++r) {
    for (const Turn& turn : order.turns[r]) after(r, turn);
  }
}

/// Of an order: its makespan and its longest rank.
std::pair<double, double> lengths_of(const PartCosts& costs, std::uint32_t micro_batches, const PipelineOrder& order) {
  const OrderTimes time = time_order(costs, micro_batches, order);
  EXPECTS(time.stuck.empty());
  return {time.makespan(), time.longest()};
}

}  // namespace

double OrderTimes::makespan() const {
  return *std::ranges::max_element(last);
}

double OrderTimes::longest() const {
  double longest = 0;
  for (std::size_t r = 0; r < last.size(); ++r) longest = std::max(longest, last[r] - first[r]);
  return longest;
}

OrderTimes time_order(const PartCosts& costs, std::uint32_t micro_batches, const PipelineOrder& order,
                      TransferTimes transfers) {
  return OrderClock(costs, micro_batches, order, transfers).run();
}

const PipelineOrder& shortest(const PartCosts& costs, std::uint32_t micro_batches,
                              std::span<const PipelineOrder> orders) {
  std::vector<std::pair<double, double>> lengths;
  for (const PipelineOrder& order : orders) lengths.push_back(lengths_of(costs, micro_batches, order));
  return orders[static_cast<std::size_t>(std::ranges::min_element(lengths) - lengths.begin())];
}

std::optional<PipelineOrder> shortest_for_any_network(const PartCosts& given, std::uint32_t micro_batches,
                                                      const OrderHeuristic& heuristic) {
  constexpr int steps_an_octave = 8, first_octave = -7, last_octave = 4;  // of the longest pass
  const PartCosts costs = in_ticks(given);
  const double longest_pass = std::max(std::ranges::max(costs.f), std::ranges::max(costs.b));
  std::optional<PipelineOrder> found;  // the shortest so far
  std::pair<double, double> least;
  PartCosts other = costs;
  const auto ask = [&](double transfer) {
    std::ranges::fill(other.sent, transfer);
    std::ranges::fill(other.returned, transfer);
    std::optional<PipelineOrder> order = heuristic(other);
    if (!order) return;
    const std::pair<double, double> own = lengths_of(costs, micro_batches, *order);
    if (found && !(own < least)) return;
    found = std::move(order);
    least = own;
  };
  ask(0);
  for (int step = first_octave * steps_an_octave; step <= last_octave * steps_an_octave; ++step) {
    ask(longest_pass * std::exp2(static_cast<double>(step) / steps_an_octave));
  }
  return found ? std::move(found) : heuristic(given);
}

std::vector<std::int64_t> kept_at_most(const PartCosts& costs, const PipelineOrder& order) {
  std::vector<std::int64_t> now(order.turns.size(), 0), most = now;
  each_turn(order, [&](std::size_t r, const Turn& turn) {
    const std::size_t g = turn.part.index;
    const std::int64_t waits = order.weights_apart ? costs.kept_for_weights[g] : 0;
    now[r] += turn.piece == piece::forward    ? costs.kept[g]
              : turn.piece == piece::backward ? waits - costs.kept[g]
                                              : -waits;
    if (turn.piece == piece::forward) most[r] = std::max(most[r], now[r]);
  });
  return most;
}

std::vector<std::int64_t> limits_of(const PartCosts& costs, std::span<const std::uint32_t> rank_of, double limit) {
  return limits_of(costs, rank_of, std::vector(*std::ranges::max_element(rank_of) + std::size_t{1}, limit));
}

std::vector<std::int64_t> limits_of(const PartCosts& costs, std::span<const std::uint32_t> rank_of,
                                    std::span<const double> limits) {
  const auto ranks = static_cast<double>(limits.size());
  std::vector<std::int64_t> kept(limits.size(), 0);
  for (std::size_t g = 0; g < rank_of.size(); ++g) kept[rank_of[g]] += costs.kept[g];
  for (std::size_t r = 0; r < kept.size(); ++r) {
    kept[r] = static_cast<std::int64_t>(std::floor(limits[r] * ranks * static_cast<double>(kept[r])));
  }
  return kept;
}

double limit_for(const PartCosts& costs, std::span<const std::uint32_t> rank_of, std::span<const std::int64_t> kept) {
  const std::vector<std::int64_t> one = limits_of(costs, rank_of, 1);
  double needed = 0;
  for (std::size_t r = 0; r < kept.size(); ++r) {
    if (one[r] > 0) needed = std::max(needed, static_cast<double>(kept[r]) / static_cast<double>(one[r]));
  }
  double tens_of_thousandths = whole_above(needed * 1e4);
  const auto fits = [&] {
    return std::ranges::equal(kept, limits_of(costs, rank_of, tens_of_thousandths / 1e4), std::ranges::less_equal{});
  };
  while (!fits()) ++tens_of_thousandths;
  return tens_of_thousandths / 1e4;
}

double least_limit(const PartCosts& costs, std::span<const std::uint32_t> rank_of) {
  std::vector<std::int64_t> kept(limits_of(costs, rank_of, 1).size(), 0);
  for (std::size_t g = 0; g < rank_of.size(); ++g) kept[rank_of[g]] += costs.kept[g];
  return limit_for(costs, rank_of, kept);
}

}  // namespace plimsoll
