#include "experiments/sweep/sweep_estimate.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/core/expects.h"

namespace plimsoll {

SweepEstimate::SweepEstimate(std::size_t workers) : workers_(workers) {
  EXPECTS(workers >= 1);
}

void SweepEstimate::expect(const std::string& strategy, double work) {
  paces_[strategy].expected += work;
}

void SweepEstimate::done(const std::string& strategy, double work, Seconds taken) {
  Pace& pace = paces_[strategy];
  pace.done += work;
  pace.taken += taken;
}

std::optional<SweepEstimate::Left> SweepEstimate::left(Clock::time_point now) const {
  Pace all;
  for (const auto& [unused, pace] : paces_) {
    all.done += pace.done;
    all.taken += pace.taken;
  }
  if (all.done <= 0) return std::nullopt;
  Left left;
  for (const auto& [strategy, pace] : paces_) {
    const double rest = std::max(0.0, pace.expected - pace.done);
    const Pace& like = pace.done > 0 ? pace : all;
    double each = like.taken.value / like.done;
    if (pace.done <= 0) {
      left.at_least |= rest > 0;
      for (const auto& [unused, group] : running_) {
        const double taken = std::chrono::duration<double>(now - group.since).count();
        if (group.strategy == strategy && group.work > 0) each = std::max(each, taken / group.work);
      }
    }
    left.seconds.value += rest * each;
  }
  left.seconds.value /= static_cast<double>(workers_);
  return left;
}

void SweepEstimate::started(std::size_t group, Group running) {
  running_[group] = std::move(running);
}

void SweepEstimate::ended(std::size_t group) {
  running_.erase(group);
}

void SweepEstimate::finished(std::size_t group) {
  const Group& running = running_.at(group);
  const std::chrono::duration<double> taken = Clock::now() - running.since;
  done(running.strategy, running.work, Seconds{taken.count()});
  ended(group);
}

std::string SweepEstimate::now() const {
  const auto first = std::ranges::min_element(running_, {}, [](const auto& each) { return each.second.since; });
  return first == running_.end() ? "" : first->second.name;
}

}  // namespace plimsoll
