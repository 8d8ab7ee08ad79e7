#include "sim/measure/metrics.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "sim/core/collective_op.h"
#include "sim/core/containers/in_order.h"
#include "sim/core/expects.h"
#include "sim/measure/op_parts.h"
#include "sim/model/stage_exchanges.h"

namespace plimsoll {
namespace {

using Spans = std::vector<std::pair<double, double>>;

/// Sorted, disjoint spans that cover the same dates.
Spans merged(Spans spans) {
  put_in_order(spans);
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

/// When a device, or all of them, begins and ends each micro-batch; updates are of none.
struct MicroBatches {
  std::vector<double> begin, end;

  explicit MicroBatches(std::uint32_t count) : begin(count, infinity), end(count, -infinity) {}
  void add(const Step& step, const Interval& ran) {
    if (step.kind == StepKind::forward) {
      begin[step.micro_batch] = std::min(begin[step.micro_batch], ran.start.value);
    }
    end[step.micro_batch] = std::max(end[step.micro_batch], ran.finish.value);
  }
  /// How many at one time, at most.
  std::uint32_t most() const {
    std::vector<std::pair<double, int>> changes;  // one that ends makes room before another begins
    for (std::size_t i = 0; i < begin.size(); ++i) {
      if (begin[i] >= end[i]) continue;
      changes.emplace_back(begin[i], 1);
      changes.emplace_back(end[i], -1);
    }
    std::ranges::sort(changes);
    int now = 0, most = 0;
    for (const auto& [date, change] : changes) most = std::max(most, now += change);
    return static_cast<std::uint32_t>(most);
  }
  std::optional<Seconds> median_between_ends() const {
    std::vector<double> ends = end, between;
    std::ranges::sort(ends);
    for (std::size_t i = 1; i < ends.size(); ++i) between.push_back(ends[i] - ends[i - 1]);
    if (between.empty() || ends.front() == -infinity) return std::nullopt;
    const auto middle = between.begin() + static_cast<std::ptrdiff_t>(between.size() / 2);
    std::nth_element(between.begin(), middle, between.end());
    return Seconds{*middle};
  }

 private:
  static constexpr double infinity = std::numeric_limits<double>::infinity();
};

/// Collectives of a device: those that are steps, and what steps of stages say that is part of them.
class Exchanges {
 public:
  void add(std::string_view axis, const Interval& ran) {
    steps_[std::string(axis)].emplace_back(ran.start.value, ran.finish.value);
  }
  void add(const ExchangeShare& within, bool is_saved) {
    Exchanged& sum = within_[within.axis];
    sum.time += within.total;
    sum.exposed += is_saved ? within.exposed : within.exposed_unsaved;
  }

  void measure(const Spans& computing, Metrics& metrics) const {
    Spans all;
    for (const auto& [axis, spans] : steps_) {
      all.insert(all.end(), spans.begin(), spans.end());
      const Exchanged sum{Seconds{length(spans)}, Seconds{length_outside(merged(spans), computing)}};
      metrics.exchange += sum.time;
      add(metrics, axis, sum);
    }
    metrics.exposed_exchange += Seconds{length_outside(merged(std::move(all)), computing)};
    for (const auto& [axis, sum] : within_) {
      metrics.exchange += sum.time;
      metrics.exposed_exchange += sum.exposed;
      add(metrics, axis, sum);
    }
  }

 private:
  struct Exchanged {
    Seconds time, exposed;
  };

  static void add(Metrics& metrics, const std::string& axis, const Exchanged& some) {
    auto place = std::ranges::lower_bound(metrics.axes, axis, {}, &AxisMetrics::axis);
    if (place == metrics.axes.end() || place->axis != axis) {
      place = metrics.axes.insert(place, {.axis = axis, .exchange = {}, .exposed = {}});
    }
    place->exchange += some.time;
    place->exposed += some.exposed;
  }

  std::map<std::string, Spans> steps_;
  std::map<std::string, Exchanged> within_;
};

std::vector<MemoryId> hosts_of(const Platform& platform) {
  RouteFinder finder(platform);
  std::vector<MemoryId> hosts;
  for (std::uint32_t d = 0; d < platform.devices.size(); ++d) {
    const std::optional<MemoryId> host = finder.memory_at(DeviceId{d}, place::host);
    if (host && std::ranges::find(hosts, *host) == hosts.end()) hosts.push_back(*host);
  }
  return hosts;
}

std::vector<MemoryMetrics> other_memories(const Platform& platform, const Timeline& timeline) {
  std::vector<MemoryMetrics> found;
  std::vector<MemoryId> hosts;
  for (std::uint32_t m = 0; m < platform.memories.size(); ++m) {
    const Memory& memory = platform.memories[m];
    if (memory.device || timeline.peaks[m].bytes == Bytes{0}) continue;
    if (found.empty()) hosts = hosts_of(platform);
    const bool is_host = std::ranges::find(hosts, MemoryId{m}) != hosts.end();
    found.push_back({memory.name, is_host, timeline.peaks[m].bytes, memory.capacity});
  }
  return found;
}

}  // namespace

Bytes host_peak(const Metrics& metrics) {
  Bytes most;
  for (const MemoryMetrics& memory : metrics.memories) {
    if (memory.is_host) most = std::max(most, memory.peak);
  }
  return most;
}

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
  std::vector<Spans> computing(platform.devices.size()), moving(platform.devices.size()),
      waiting(platform.devices.size());  // in collectives, with nothing beside
  std::vector<Exchanges> exchanges(platform.devices.size());
  std::vector<MicroBatches> on_device(platform.devices.size(), MicroBatches(schedule.micro_batches));
  MicroBatches everywhere(schedule.micro_batches);
  for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
    const Step& step = schedule.steps[s];
    const Interval& ran = timeline.steps[s];
    const std::uint32_t device = schedule[step.stream].device.index;
    if (step.work.is_transfer()) {
      metrics.moved += step.work.bytes;
      moving[device].emplace_back(ran.start.value, ran.finish.value);
    } else if (const auto exchange = step.op == no_op ? std::nullopt : collective_of(problem.graph[step.op])) {
      exchanges[device].add(exchange->axis, ran);
      if (schedule[step.stream].way == way::compute) {
        waiting[device].emplace_back(ran.start.value, ran.finish.value);
      }
    } else {
      computing[device].emplace_back(ran.start.value, ran.finish.value);
      if (step.op != no_op && step.kind != StepKind::update) {
        on_device[device].add(step, ran);
        everywhere.add(step, ran);
      }
    }
    if (step.op != no_op) {
      const Op& op = problem.graph[step.op];
      for (const ExchangeShare& within : exchanges_within(op)) {
        exchanges[device].add(within, saves_for_backward(schedule, step, op));
      }
    }
    if (step.kind != StepKind::recompute) continue;
    metrics.recompute += ran.finish - ran.start;
    ++metrics.recomputes;
  }
  double busy = 0;
  for (std::size_t d = 0; d < platform.devices.size(); ++d) {
    exchanges[d].measure(merged(computing[d]), metrics);
    computing[d].insert(computing[d].end(), waiting[d].begin(), waiting[d].end());  // takes the device, too
    const Spans computes = merged(std::move(computing[d]));
    const Spans moves = merged(std::move(moving[d]));
    const Bytes peak = timeline.peaks[platform.devices[d].memory.index].bytes;
    const std::optional<Bytes> budget =
        schedule.budget ? schedule.budget : platform[platform.devices[d].memory].capacity;
    metrics.devices.push_back({.name = platform.devices[d].name,
                               .peak_live = peak,
                               .busy = Seconds{length(computes)},
                               .in_flight = on_device[d].most(),
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
  metrics.memories = other_memories(platform, timeline);
  const auto devices = static_cast<double>(devices_used(schedule));
  const double available = devices * metrics.makespan.value;
  metrics.ideal = Seconds{busy / devices};
  metrics.period = everywhere.median_between_ends();
  metrics.bubble = available > 0 ? std::max(0.0, 1 - busy / available) : 0;
  return metrics;
}

}  // namespace plimsoll
