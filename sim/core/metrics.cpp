#include "sim/core/metrics.h"

#include <algorithm>
#include <set>

#include "sim/core/expects.h"

namespace plimsoll {
namespace {

using Spans = std::vector<std::pair<double, double>>;

/// Sorted, disjoint spans that cover the same dates.
Spans merged(Spans spans) {
  std::ranges::sort(spans);
  Spans covered;
  for (const auto& [start, finish] : spans) {
    if (finish <= start) continue;
    if (!covered.empty() && start <= covered.back().second) {
      covered.back().second = std::max(covered.back().second, finish);
    } else {
      covered.emplace_back(start, finish);
    }
  }
  return covered;
}

double length(const Spans& spans) {
  double sum = 0;
  for (const auto& [start, finish] : spans) sum += finish - start;
  return sum;
}

/// How much of `a` is not covered by `b`; both merged.
double length_outside(const Spans& a, const Spans& b) {
  Spans both = a;
  both.insert(both.end(), b.begin(), b.end());
  return length(merged(std::move(both))) - length(b);
}

}  // namespace

std::size_t devices_used(const Schedule& schedule) {
  std::set<DeviceId> used;
  for (const Stream& stream : schedule.streams) {
    if (stream.way == way::compute) used.insert(stream.device);
  }
  return std::max<std::size_t>(1, used.size());
}

Metrics measure(const Problem& problem, const Schedule& schedule, const Timeline& timeline) {
  const Platform& platform = problem.platform;
  EXPECTS(timeline.steps.size() == schedule.steps.size() && timeline.peaks.size() == platform.memories.size());
  Metrics metrics;
  metrics.makespan = timeline.makespan;
  std::vector<Spans> computing(platform.devices.size()), moving(platform.devices.size());
  for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
    const Step& step = schedule.steps[s];
    const Interval& ran = timeline.steps[s];
    const std::uint32_t device = schedule[step.stream].device.index;
    if (step.work.is_transfer()) {
      metrics.moved += step.work.bytes;
      moving[device].emplace_back(ran.start.value, ran.finish.value);
    } else {
      computing[device].emplace_back(ran.start.value, ran.finish.value);
    }
    if (step.kind != StepKind::recompute) continue;
    metrics.recompute += ran.finish - ran.start;
    ++metrics.recomputes;
  }
  double busy = 0;
  for (std::size_t d = 0; d < platform.devices.size(); ++d) {
    const Spans computes = merged(std::move(computing[d]));
    const Spans moves = merged(std::move(moving[d]));
    const Bytes peak = timeline.peaks[platform.devices[d].memory.index].bytes;
    const std::optional<Bytes> budget =
        schedule.budget ? schedule.budget : platform[platform.devices[d].memory].capacity;
    metrics.devices.push_back({.name = platform.devices[d].name,
                               .peak_live = peak,
                               .busy = Seconds{length(computes)},
                               .fits = !budget || peak <= *budget});
    metrics.peak = std::max(metrics.peak, peak);
    metrics.fits &= metrics.devices.back().fits;
    metrics.exposed_transfer += Seconds{length_outside(moves, computes)};
    busy += length(computes);
    if (!computes.empty()) {
      const Seconds stage{computes.back().second - computes.front().first};
      metrics.longest_stage = std::max(metrics.longest_stage, stage);
    }
  }
  const double available = static_cast<double>(devices_used(schedule)) * metrics.makespan.value;
  metrics.bubble = available > 0 ? std::max(0.0, 1 - busy / available) : 0;
  return metrics;
}

}  // namespace plimsoll
