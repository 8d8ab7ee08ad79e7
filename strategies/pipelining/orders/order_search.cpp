#include "strategies/pipelining/orders/order_search.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "sim/core/expects.h"

namespace plimsoll {
namespace {

class OrderSearch {
 public:
  OrderSearch(const PartCosts& costs, std::uint32_t m, const PipelineOrder& start, std::span<const std::int64_t> limits,
              Shorter shorter)
      : costs_(costs), m_(m), limits_(limits), shorter_(shorter), order_(start), best_(start) {
    for (std::vector<Turn>& turns : order_.turns) EXPECTS(number(turns, order_.weights_apart));
    best_length_ = length_ = value(time_order(costs, m, order_));
    EXPECTS(length_ < stuck);
    best_ = order_;
  }

  PipelineOrder run(std::size_t moves) {
    std::mt19937 random(1);  // the engine's numbers are the same everywhere, distributions' are not
    const double hot = 0.02 * length_;
    for (std::size_t k = 0; k < moves; ++k) {
      const double left = 1 - static_cast<double>(k) / static_cast<double>(moves);
      const std::size_t r = random() % order_.turns.size();
      std::vector<Turn>& turns = order_.turns[r];
      if (turns.size() < 2) continue;
      const std::size_t from = random() % turns.size();
      const std::size_t by = 1 + random() % (1 + std::min<std::size_t>(turns.size() / 4, 12));
      const std::size_t to = random() % 2 == 0 ? (from < by ? 0 : from - by) : std::min(from + by, turns.size() - 1);
      if (turns[from].part == turns[to].part && turns[from].piece == turns[to].piece) continue;
      const std::vector<Turn> before = turns;
      move(turns, from, to);
      if (!number(turns, order_.weights_apart) || !fits(r)) {
        turns = before;
        continue;
      }
      const double now = value(time_order(costs_, m_, order_));
      const double chance = static_cast<double>(random()) / 4294967296.0;
      if (now > length_ && !(chance < std::exp((length_ - now) / (hot * left * left + 1e-12 * length_)))) {
        turns = before;
        continue;
      }
      length_ = now;
      if (now < best_length_) {
        best_length_ = now;
        best_ = order_;
      }
    }
    return best_;
  }

 private:
  static constexpr double stuck = 1e300;

  /// The length, and far less all ranks' ends together, which says where there is room to win.
  double value(const OrderTimes& times) const {
    if (!times.stuck.empty()) return stuck;
    double ends = 0;
    for (std::size_t r = 0; r < times.last.size(); ++r) ends += times.last[r];
    return length_of(times, shorter_) + 0.01 * ends / static_cast<double>(times.last.size());
  }

  static void move(std::vector<Turn>& turns, std::size_t from, std::size_t to) {
    const auto at = [&](std::size_t k) { return turns.begin() + static_cast<std::ptrdiff_t>(k); };
    if (from < to) {
      std::rotate(at(from), at(from + 1), at(to + 1));
    } else {
      std::rotate(at(to), at(from), at(from + 1));
    }
  }

  /// Numbers each part's forwards, backwards and W by micro-batch. False where one comes before what it reads.
  bool number(std::vector<Turn>& turns, bool weights_apart) {
    done_.assign(3 * costs_.parts(), 0);
    for (Turn& turn : turns) {
      std::uint32_t* of_part = &done_[3 * turn.part.index];
      turn.micro_batch = of_part[turn.piece]++;
      if (turn.piece > 0 && of_part[turn.piece] > of_part[turn.piece - 1]) return false;
    }
    EXPECTS(weights_apart || std::ranges::none_of(turns, [](const Turn& t) { return t.piece == piece::weights; }));
    return true;
  }

  bool fits(std::size_t r) const {
    std::int64_t kept = 0;
    for (const Turn& turn : order_.turns[r]) {
      const std::size_t g = turn.part.index;
      const std::int64_t waits = order_.weights_apart ? costs_.kept_for_weights[g] : 0;
      if (turn.piece == piece::forward && (kept += costs_.kept[g]) > limits_[r]) return false;
      if (turn.piece == piece::backward) kept += waits - costs_.kept[g];
      if (turn.piece == piece::weights) kept -= waits;
    }
    return true;
  }

  const PartCosts& costs_;
  std::uint32_t m_;
  std::span<const std::int64_t> limits_;
  Shorter shorter_;
  PipelineOrder order_, best_;
  double length_ = 0, best_length_ = 0;
  std::vector<std::uint32_t> done_;
};

}  // namespace

double length_of(const OrderTimes& times, Shorter shorter) {
  return shorter == Shorter::makespan ? times.makespan() : times.longest();
}

PipelineOrder search_order(const PartCosts& costs, std::uint32_t micro_batches, const PipelineOrder& start,
                           std::span<const std::int64_t> limits, Shorter shorter, std::size_t moves) {
  PipelineOrder found = OrderSearch(costs, micro_batches, start, limits, shorter).run(moves);
  const auto length = [&](const PipelineOrder& order) {
    return length_of(time_order(costs, micro_batches, order), shorter);
  };
  return length(found) < length(start) ? found : start;
}

}  // namespace plimsoll
