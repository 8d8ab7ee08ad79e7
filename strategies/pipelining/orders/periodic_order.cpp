#include "strategies/pipelining/orders/periodic_order.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

namespace plimsoll {
namespace {

constexpr double period_slack = 1e-9;  // of a period, for sums that are rounded
constexpr double no_wait = -std::numeric_limits<double>::infinity();

/// Passes are numbered: the forwards of all parts, then their backwards.
class PeriodicSearch {
 public:
  PeriodicSearch(const PartCosts& costs, std::span<const std::uint32_t> rank_of,
                 std::span<const std::uint32_t> in_flight, double period)
      : parts_(costs.parts()), rank_of_(rank_of), period_(period), starts_(2 * costs.parts(), 0) {
    for (std::size_t g = 0; g < parts_; ++g) lasts_.push_back(costs.f[g]);
    for (std::size_t g = 0; g < parts_; ++g) lasts_.push_back(costs.b[g] + costs.w[g]);
    for (std::size_t g = 0; g < parts_; ++g) {
      const std::size_t forward = g, backward = parts_ + g;
      if (g + 1 < parts_) {
        after(forward, forward + 1, lasts_[forward] + costs.sent[g]);
        after(backward + 1, backward, lasts_[backward + 1] + costs.returned[g]);
      } else {
        after(forward, backward, lasts_[forward]);
      }
      after(backward, forward, lasts_[backward] - in_flight[g] * period);
    }
  }

  std::optional<PeriodicTimes> run() {
    if (!has_time() || !settle() || !decide()) return std::nullopt;
    const auto middle = starts_.begin() + static_cast<std::ptrdiff_t>(parts_);
    return PeriodicTimes{period_, {starts_.begin(), middle}, {middle, starts_.end()}};
  }

 private:
  /// `to` begins no sooner than `by` after `from` does.
  struct Wait {
    std::size_t from, to;
    double by;
  };

  /// That `to` of some micro-batch comes after `from`, or the other way round.
  struct Overlap {
    Wait first, second;
  };

  void after(std::size_t from, std::size_t to, double by) { add({from, to, by}); }

  /// Of waits between the same two only the longest counts, so that however deep the search is there are few. Returns
  /// what undo() takes back.
  Wait add(const Wait& wait) {
    const auto same =
        std::ranges::find_if(waits_, [&](const Wait& other) { return other.from == wait.from && other.to == wait.to; });
    if (same == waits_.end()) {
      waits_.push_back(wait);
      return {wait.from, wait.to, no_wait};
    }
    const Wait before = *same;
    same->by = std::max(same->by, wait.by);
    return before;
  }

  void undo(const Wait& before) {
    const auto same = std::ranges::find_if(
        waits_, [&](const Wait& other) { return other.from == before.from && other.to == before.to; });
    if (before.by == no_wait)
      waits_.erase(same);
    else
      same->by = before.by;
  }

  /// Whether each rank's passes fit a period one after the other.
  bool has_time() const {
    std::vector<double> busy(std::ranges::max(rank_of_) + std::size_t{1}, 0);
    for (std::size_t g = 0; g < parts_; ++g) busy[rank_of_[g]] += lasts_[g] + lasts_[parts_ + g];
    return std::ranges::max(busy) <= period_ * (1 + period_slack);
  }

  /// The earliest starts that all waits allow; false where they go round in a circle.
  bool settle() {
    for (std::size_t round = 0; round <= starts_.size(); ++round) {
      bool any = false;
      for (const Wait& wait : waits_) {
        const double earliest = starts_[wait.from] + wait.by;
        if (earliest <= starts_[wait.to] + period_slack * period_) continue;
        starts_[wait.to] = earliest;
        any = true;
      }
      if (!any) return true;
    }
    return false;
  }

  bool decide() {
    const std::optional<Overlap> overlap = first_overlap();
    if (!overlap) return true;
    constexpr std::size_t most_steps = 20'000;
    if (++steps_ > most_steps) return false;
    const std::vector<double> before = starts_;
    for (const Wait& wait : {overlap->first, overlap->second}) {
      const Wait shorter = add(wait);
      if (settle() && decide()) return true;
      undo(shorter);
      starts_ = before;
    }
    return false;
  }

  std::optional<Overlap> first_overlap() const {
    for (std::size_t a = 0; a < starts_.size(); ++a) {
      for (std::size_t b = a + 1; b < starts_.size(); ++b) {
        if (rank_of_[a % parts_] != rank_of_[b % parts_]) continue;
        const double apart = starts_[b] - starts_[a];
        double periods = std::floor(apart / period_ + period_slack);
        const double rest = apart - periods * period_;
        const bool too_soon =
            rest<lasts_[a] - period_slack * period_, too_late = rest> period_ - lasts_[b] + period_slack * period_;
        if (!too_soon && !too_late) continue;
        if (!too_soon) ++periods;  // it meets the next micro-batch's
        Overlap overlap{{a, b, lasts_[a] + periods * period_}, {b, a, lasts_[b] - periods * period_}};
        const auto pushed = [&](const Wait& wait) { return starts_[wait.from] + wait.by - starts_[wait.to]; };
        if (pushed(overlap.second) < pushed(overlap.first)) std::swap(overlap.first, overlap.second);
        return overlap;
      }
    }
    return std::nullopt;
  }

  std::size_t parts_;
  std::span<const std::uint32_t> rank_of_;
  double period_;
  std::vector<double> starts_, lasts_;
  std::vector<Wait> waits_;
  std::size_t steps_ = 0;
};

}  // namespace

std::optional<PeriodicTimes> periodic_times(const PartCosts& costs, std::span<const std::uint32_t> rank_of,
                                            std::span<const std::uint32_t> in_flight, double period) {
  return PeriodicSearch(costs, rank_of, in_flight, period).run();
}

PipelineOrder unrolled(const PeriodicTimes& times, std::span<const std::uint32_t> rank_of, std::uint32_t m) {
  PipelineOrder order{{rank_of.begin(), rank_of.end()}, {}};
  std::vector<std::vector<std::pair<double, Turn>>> begun(std::ranges::max(rank_of) + std::size_t{1});
  for (std::uint32_t g = 0; g < rank_of.size(); ++g) {
    for (std::uint32_t i = 0; i < m; ++i) {
      begun[rank_of[g]].push_back({times.forward[g] + i * times.period, {PartId{g}, i, piece::forward}});
      begun[rank_of[g]].push_back({times.backward[g] + i * times.period, {PartId{g}, i, piece::backward}});
    }
  }
  for (auto& of_rank : begun) {
    std::ranges::stable_sort(of_rank, {}, &std::pair<double, Turn>::first);
    std::vector<Turn>& turns = order.turns.emplace_back();
    for (const auto& [start, turn] : of_rank) turns.push_back(turn);
  }
  return order;
}

}  // namespace plimsoll
