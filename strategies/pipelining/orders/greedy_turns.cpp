#include "strategies/pipelining/orders/greedy_turns.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "strategies/pipelining/orders/orders.h"

namespace plimsoll {
namespace {

constexpr double not_yet = std::numeric_limits<double>::infinity();

class GreedyDevices {
 public:
  GreedyDevices(const Partition& partition, const TurnCosts& costs)
      : partition_(partition),
        costs_(costs),
        most_(waiting_in(partition)),
        now_(partition.parts.size(), Waiting{.in_flight = 0}),
        kept_most_(partition.order.size(), 0),
        kept_(partition.order.size(), 0),
        free_(partition.order.size(), 0),
        left_(partition.order),
        taken_(partition.order.size()) {
    stages_ = std::ranges::max(costs.stage) + 1;
    devices_of_.resize(stages_);
    for (std::size_t p = 0; p < partition.parts.size(); ++p) {
      devices_of_[costs.stage[p]].push_back(partition.parts[p].device.index);
    }
    for (const std::vector<Turn>& turns : left_) {
      for (const Turn& turn : turns) micro_batches_ = std::max(micro_batches_, turn.micro_batch + 1);
    }
    ends_.resize(std::size_t{2} * stages_ * micro_batches_);
    next_.resize(left_.size());
    for (std::size_t d = 0; d < left_.size(); ++d) {
      std::int64_t kept = 0;
      for (const Turn& turn : left_[d]) {
        kept += adds(turn);
        if (turn.piece == piece::forward) kept_most_[d] = std::max(kept_most_[d], kept);
      }
    }
  }

  std::optional<std::vector<std::vector<Turn>>> run() {
    while (true) {
      std::size_t device = left_.size(), place = 0;
      double begins = not_yet;
      bool any_left = false;
      for (std::size_t d = 0; d < left_.size(); ++d) {
        any_left = any_left || !left_[d].empty();
        if (!next_[d]) next_[d] = next_of(d);
        const auto [start, first] = *next_[d];
        if (start >= begins) continue;
        begins = start;
        device = d;
        place = first;
      }
      if (!any_left) return std::move(taken_);
      if (begins == not_yet) return std::nullopt;
      take(device, place, begins);
    }
  }

 private:
  struct End {
    double time = not_yet;
    std::size_t device = 0;
  };

  bool has_weights(std::size_t part) const { return partition_.parts[part].cut_before_weights; }

  /// To what the device keeps.
  std::int64_t adds(const Turn& turn) const {
    const std::size_t p = turn.part.index;
    const std::int64_t waits = has_weights(p) ? costs_.kept_for_weights[p] : 0;
    if (turn.piece == piece::forward) return costs_.kept[p];
    return turn.piece == piece::backward ? waits - costs_.kept[p] : -waits;
  }

  bool is_allowed(std::size_t d, const Turn& turn) const {
    const std::size_t p = turn.part.index;
    if (turn.piece == piece::forward) {
      return now_[p].in_flight < most_[p].in_flight && kept_[d] + adds(turn) <= kept_most_[d];
    }
    return turn.piece != piece::backward || !has_weights(p) || now_[p].weights < most_[p].weights;
  }

  const End& end_of(std::uint32_t stage, std::uint32_t micro_batch, std::uint32_t kind) const {
    return ends_[(std::size_t{stage} * micro_batches_ + micro_batch) * 2 + kind];
  }

  /// What the turn reads, from the stage before or behind and from its own part.
  double ready(std::size_t d, const Turn& turn) const {
    const std::size_t p = turn.part.index;
    const std::uint32_t s = costs_.stage[p], i = turn.micro_batch;
    const auto arrives = [&](std::uint32_t stage, std::uint32_t kind, double transfer) {
      const End& end = end_of(stage, i, kind);
      return end.time + (end.device == d ? 0 : transfer);
    };
    if (turn.piece == piece::weights) return end_of(s, i, piece::backward).time;
    if (turn.piece == piece::forward) return s == 0 ? 0 : arrives(s - 1, piece::forward, costs_.sent[p]);
    const double own = end_of(s, i, piece::forward).time;
    return s + 1 == stages_ ? own : std::max(own, arrives(s + 1, piece::backward, costs_.returned[p]));
  }

  /// When the device takes its next turn, as far as it is known, and which one.
  std::pair<double, std::size_t> next_of(std::size_t d) const {
    std::pair<double, std::size_t> next{not_yet, 0};
    for (std::size_t k = 0; k < left_[d].size() && next.first > free_[d]; ++k) {
      if (!is_allowed(d, left_[d][k])) continue;
      next = std::min(next, {std::max(free_[d], ready(d, left_[d][k])), k});
    }
    return next;
  }

  void take(std::size_t d, std::size_t place, double begins) {
    const Turn turn = left_[d][place];
    const std::size_t p = turn.part.index;
    left_[d].erase(left_[d].begin() + static_cast<std::ptrdiff_t>(place));
    taken_[d].push_back(turn);
    kept_[d] += adds(turn);
    switch (turn.piece) {
      case piece::forward:
        ++now_[p].in_flight;
        break;
      case piece::backward:
        --now_[p].in_flight;
        if (has_weights(p)) ++now_[p].weights;
        break;
      default:
        --now_[p].weights;
    }
    free_[d] = begins + costs_.seconds[p][turn.piece];
    next_[d].reset();
    if (turn.piece == piece::weights) return;
    const std::uint32_t s = costs_.stage[p];
    ends_[(std::size_t{s} * micro_batches_ + turn.micro_batch) * 2 + turn.piece] = {free_[d], d};
    for (std::uint32_t reader = s == 0 ? 0 : s - 1; reader <= std::min(s + 1, stages_ - 1); ++reader) {
      for (const std::size_t device : devices_of_[reader]) next_[device].reset();
    }
  }

  const Partition& partition_;
  const TurnCosts& costs_;
  std::uint32_t stages_ = 0, micro_batches_ = 0;
  std::vector<Waiting> most_, now_;             // by part
  std::vector<std::int64_t> kept_most_, kept_;  // by device
  std::vector<double> free_;
  std::vector<std::vector<Turn>> left_, taken_;
  std::vector<std::vector<std::size_t>> devices_of_;                 // by stage
  std::vector<End> ends_;                                            // by stage, micro-batch, forward or backward
  std::vector<std::optional<std::pair<double, std::size_t>>> next_;  // by device, where nothing has changed since
};

}  // namespace

std::optional<std::vector<std::vector<Turn>>> greedy_turns(const Partition& partition, const TurnCosts& costs) {
  return GreedyDevices(partition, costs).run();
}

}  // namespace plimsoll
