#include "strategies/pipelining/orders/list_order.h"

#include <algorithm>
#include <deque>
#include <limits>

#include "sim/core/expects.h"

namespace plimsoll {
namespace {

constexpr double no_time = std::numeric_limits<double>::infinity();

class ListScheduler {
 public:
  ListScheduler(const PartCosts& costs, std::span<const std::uint32_t> rank_of, std::uint32_t m, bool weights_apart,
                std::span<const std::int64_t> limits, const ListRule& rule)
      : costs_(costs),
        rank_of_(rank_of),
        m_(m),
        weights_apart_(weights_apart),
        limits_(limits),
        rule_(rule),
        parts_(costs.parts()),
        ranks_(limits.size()),
        turns_(limits.size()) {
    for (std::size_t g = 0; g < parts_.size(); ++g) {
      parts_[g].forward_arrives.assign(m, g == 0 ? 0 : no_time);
      parts_[g].backward_arrives.assign(m, no_time);
      Rank& rank = ranks_[rank_of[g]];
      rank.parts.push_back(g);
      rank.whole += costs.kept[g];
    }
  }

  std::optional<PipelineOrder> run() {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (ranks_[r].whole > limits_[r]) return std::nullopt;
    }
    for (std::size_t left = parts_.size() * m_ * (weights_apart_ ? 3 : 2); left > 0; --left) {
      std::size_t next = 0;
      ListChoice first;
      for (std::size_t r = 0; r < ranks_.size(); ++r) {
        const ListChoice choice = choice_of(r);
        if (choice.start < first.start) {
          first = choice;
          next = r;
        }
      }
      EXPECTS(first.start < no_time);
      take(next, first);
    }
    return PipelineOrder{{rank_of_.begin(), rank_of_.end()}, std::move(turns_), weights_apart_};
  }

 private:
  struct PartState {
    std::vector<double> forward_arrives, backward_arrives;
    std::uint32_t forwards = 0, backwards = 0;  // made
  };
  struct Rank {
    std::vector<std::size_t> parts;
    double now = 0;
    std::int64_t kept = 0, whole = 0;                     // whole: of one micro-batch, all parts
    std::deque<Turn> waiting;                             // W
    std::vector<std::pair<std::uint32_t, double>> links;  // to another rank: free when
  };
  struct ListChoice {
    double start = no_time;
    std::uint32_t kind = piece::forward;
    std::size_t part = 0;
  };

  /// Whether the part's next forward fits, and all micro-batches on the rank can end then, one after the other.
  bool has_room(std::size_t r, std::size_t g) const {
    const Rank& rank = ranks_[r];
    std::int64_t room = limits_[r] - rank.kept - costs_.kept[g];
    if (room < 0) return false;
    if (rank.parts.size() == 1) return true;
    for (const Turn& turn : rank.waiting) room += costs_.kept_for_weights[turn.part.index];
    std::uint32_t i = m_;
    for (const std::size_t part : rank.parts) i = std::min(i, parts_[part].backwards);
    for (; i < m_; ++i) {
      std::int64_t needed = 0, held = 0;
      bool begun = false;
      for (const std::size_t part : rank.parts) {
        const bool has_it = parts_[part].forwards + (part == g ? 1 : 0) > i;
        begun = begun || has_it;
        if (!has_it) needed += costs_.kept[part];
        if (has_it && parts_[part].backwards <= i) held += costs_.kept[part];
      }
      if (!begun) break;
      if (needed > room) return false;
      room += held;
    }
    return true;
  }

  /// Whether the rank would rather take `a` than `b`.
  bool is_better(const ListChoice& a, const ListChoice& b) const {
    if (a.kind != b.kind) return (a.kind == piece::forward) == rule_.forwards_first;
    return a.kind == piece::forward ? a.part > b.part : a.part < b.part;
  }

  ListChoice choice_of(std::size_t r) const {
    const Rank& rank = ranks_[r];
    std::vector<ListChoice> possible;
    double soonest = no_time;
    const auto offer = [&](double arrives, std::uint32_t kind, std::size_t g) {
      if (arrives == no_time) return;
      possible.push_back({std::max(arrives, rank.now), kind, g});
      soonest = std::min(soonest, possible.back().start);
    };
    for (const std::size_t g : rank.parts) {
      const PartState& part = parts_[g];
      if (part.forwards < m_ && has_room(r, g)) offer(part.forward_arrives[part.forwards], piece::forward, g);
      if (part.backwards < part.forwards) offer(part.backward_arrives[part.backwards], piece::backward, g);
    }
    if (!rank.waiting.empty()) {
      const double after = rank.now + costs_.w[rank.waiting.front().part.index];
      if (after <= soonest || (rule_.fill_gaps && rank.now < soonest)) {
        return {rank.now, piece::weights, rank.waiting.front().part.index};
      }
    }
    ListChoice best;
    for (const ListChoice& choice : possible) {
      if (choice.start > soonest + rule_.patience * costs_.f[0]) continue;
      if (best.start == no_time || is_better(choice, best)) best = choice;
    }
    return best;
  }

  void take(std::size_t r, const ListChoice& choice) {
    Rank& rank = ranks_[r];
    const std::size_t g = choice.part, last = parts_.size() - 1;
    PartState& part = parts_[g];
    switch (choice.kind) {
      case piece::forward: {
        rank.now = choice.start + costs_.f[g];
        rank.kept += costs_.kept[g];
        const std::uint32_t i = part.forwards++;
        turns_[r].push_back({id_at<PartId>(g), i, piece::forward});
        if (g == last) {
          part.backward_arrives[i] = rank.now;
        } else {
          parts_[g + 1].forward_arrives[i] = arrival(rank, r, g, g + 1);
        }
        return;
      }
      case piece::backward: {
        rank.now = choice.start + costs_.b[g] + (weights_apart_ ? 0 : costs_.w[g]);
        rank.kept += (weights_apart_ ? costs_.kept_for_weights[g] : 0) - costs_.kept[g];
        const std::uint32_t i = part.backwards++;
        turns_[r].push_back({id_at<PartId>(g), i, piece::backward});
        if (weights_apart_) rank.waiting.push_back({id_at<PartId>(g), i, piece::weights});
        if (g > 0) parts_[g - 1].backward_arrives[i] = arrival(rank, r, g - 1, g - 1);
        return;
      }
      default:
        rank.now += costs_.w[g];
        rank.kept -= costs_.kept_for_weights[g];
        turns_[r].push_back(rank.waiting.front());
        rank.waiting.pop_front();
    }
  }

  /// At part `to`, over the boundary between parts g and g + 1, of what the rank has just made.
  double arrival(Rank& rank, std::size_t r, std::size_t g, std::size_t to) {
    if (rank_of_[to] == r) return rank.now;
    auto link = std::ranges::find(rank.links, rank_of_[to], &std::pair<std::uint32_t, double>::first);
    if (link == rank.links.end()) link = rank.links.insert(link, {rank_of_[to], 0});
    return link->second = std::max(link->second, rank.now) + (to == g ? costs_.returned : costs_.sent)[g];
  }

  const PartCosts& costs_;
  std::span<const std::uint32_t> rank_of_;
  std::uint32_t m_;
  bool weights_apart_;
  std::span<const std::int64_t> limits_;
  ListRule rule_;
  std::vector<PartState> parts_;
  std::vector<Rank> ranks_;
  std::vector<std::vector<Turn>> turns_;
};

}  // namespace

std::optional<PipelineOrder> list_order(const PartCosts& given, std::span<const std::uint32_t> rank_of,
                                        std::uint32_t micro_batches, bool weights_apart,
                                        std::span<const std::int64_t> limits, const ListRule& rule) {
  const PartCosts costs = in_ticks(given);
  return ListScheduler(costs, rank_of, micro_batches, weights_apart, limits, rule).run();
}

}  // namespace plimsoll
