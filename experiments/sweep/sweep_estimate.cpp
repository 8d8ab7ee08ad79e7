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

std::optional<Seconds> SweepEstimate::left() const {
  Pace all;
  for (const auto& [unused, pace] : paces_) {
    all.done += pace.done;
    all.taken += pace.taken;
  }
  if (all.done <= 0) return std::nullopt;
  Seconds left{};
  for (const auto& [unused, pace] : paces_) {
    const Pace& like = pace.done > 0 ? pace : all;
    left.value += std::max(0.0, pace.expected - pace.done) * like.taken.value / like.done;
  }
  return Seconds{left.value / static_cast<double>(workers_)};
}

void SweepEstimate::started(std::size_t group, std::string name) {
  running_[group] = {std::move(name), std::chrono::steady_clock::now()};
}

void SweepEstimate::ended(std::size_t group) {
  running_.erase(group);
}

std::string SweepEstimate::now() const {
  const auto first = std::ranges::min_element(running_, {}, [](const auto& each) { return each.second.since; });
  return first == running_.end() ? "" : first->second.name;
}

}  // namespace plimsoll
