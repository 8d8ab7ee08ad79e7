#include "sim/measure/time_parts.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>

#include "sim/core/collective_op.h"
#include "sim/core/containers/in_order.h"
#include "sim/core/expects.h"
#include "sim/core/tolerance.h"
#include "sim/measure/contention.h"
#include "sim/measure/op_parts.h"

namespace plimsoll {
namespace {

constexpr std::string_view pipeline_axis = "pipeline", replicas_axis = "data";

/// What a device does or waits for; of several at once the first here counts.
enum class TimeCause : std::uint8_t { computes, exchanges, updates_on_host, copies, receives, is_issued, nothing };
constexpr auto causes = static_cast<std::size_t>(TimeCause::nothing);

/// A time in which a cause holds on a device. `number`: the step that computes, or the axis.
struct Span {
  double start, finish;
  TimeCause cause;
  std::uint32_t number = 0;
  std::uint32_t step = no_op.index;  ///< whose time it is, unless it is idle
};

/// Numbers of some, ascending.
using SpanNumbers = std::vector<std::uint32_t>;

/// Seconds by part of one device. The bubbles are apart.
struct OfDevice {
  std::array<double, Names<TimePartKind>::all.size()> part{};
  std::map<std::string, double, std::less<>> exchange;
  double contention = 0;

  double& operator[](TimePartKind kind) { return part[static_cast<std::size_t>(kind)]; }
  double operator[](TimePartKind kind) const { return part[static_cast<std::size_t>(kind)]; }

  double busy() const {
    double sum = 0;
    for (const TimePartKind kind :
         {TimePartKind::ideal, TimePartKind::kernels, TimePartKind::launches, TimePartKind::recomputation,
          TimePartKind::updates, TimePartKind::copies, TimePartKind::evaluation}) {
      sum += (*this)[kind];
    }
    for (const auto& [axis, seconds] : exchange) sum += seconds;
    return sum;
  }
};

class Parting {
 public:
  Parting(const Problem& problem, const Schedule& schedule, const Timeline& timeline)
      : problem_(problem),
        schedule_(schedule),
        timeline_(timeline),
        parts_(problem),
        spans_(problem.platform.devices.size()),
        first_backward_(spans_.size(), infinity),
        last_forward_(spans_.size(), -infinity) {
    std::vector<double> ended(schedule.streams.size(), 0);
    for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
      add(s, ended[schedule.steps[s].stream.index]);
      ended[schedule.steps[s].stream.index] = timeline.steps[s].finish.value;
    }
  }

  /// Contention is a part of its own from now on. `alone`: the same schedule without it.
  void set_contention_apart(const Schedule& alone) {
    for (std::size_t s = 0; s < alone.steps.size(); ++s) {
      const double ran = (timeline_.steps[s].finish - timeline_.steps[s].start).value;
      const double beyond = ran - alone.steps[s].work.seconds.value;
      contended_.push_back(beyond > model_tolerance * ran ? beyond / ran : 0);
    }
  }

  std::vector<DeviceTime> by_device() {
    std::vector<DeviceTime> made;
    for (const std::uint32_t d : used()) {
      const OfDevice of = of_device(d);
      made.push_back({DeviceId{d}, listed(of), Seconds{of.contention}});
      std::erase_if(made.back().parts, [](const TimePart& part) { return part.kind == TimePartKind::imbalance; });
    }
    return made;
  }

  std::vector<TimePart> run() {
    std::vector<OfDevice> devices;
    for (const std::uint32_t d : used()) devices.push_back(of_device(d));
    const OfDevice& busiest = *std::ranges::max_element(devices, {}, &OfDevice::busy);
    OfDevice mean;
    const auto count = static_cast<double>(devices.size());
    for (const OfDevice& device : devices) {
      for (std::size_t k = 0; k < mean.part.size(); ++k) mean.part[k] += device.part[k] / count;
      for (const auto& [axis, seconds] : device.exchange) mean.exchange[axis] += seconds / count;
    }
    using enum TimePartKind;
    mean[imbalance] = std::max(0.0, busiest.busy() - mean.busy());
    for (const TimePartKind bubble : {fill_and_drain, waits}) mean[bubble] = busiest[bubble];
    return listed(mean);
  }

 private:
  static constexpr double infinity = std::numeric_limits<double>::infinity();

  static std::vector<TimePart> listed(const OfDevice& of) {
    std::vector<TimePart> made;
    for (const auto& [kind, name] : Names<TimePartKind>::all) {
      if (kind == TimePartKind::evaluation && of[kind] == 0) continue;
      if (kind != TimePartKind::exchange) {
        made.push_back({kind, "", Seconds{of[kind]}});
        continue;
      }
      for (const auto& [axis, seconds] : of.exchange) made.push_back({kind, axis, Seconds{seconds}});
    }
    return made;
  }

  /// The share of a step's time that is contention, where that is apart.
  double contended(std::uint32_t step) const {
    return contended_.empty() || step == no_op.index ? 0 : contended_[step];
  }

  /// Devices that compute; the first one where none does.
  std::set<std::uint32_t> used() const {
    std::set<std::uint32_t> devices;
    for (const Stream& stream : schedule_.streams) {
      if (stream.way == way::compute) devices.insert(stream.device.index);
    }
    if (devices.empty()) devices.insert(0);
    return devices;
  }

  std::uint32_t axis(std::string_view name) {
    const auto number = static_cast<std::size_t>(std::ranges::find(axes_, name) - axes_.begin());
    if (number == axes_.size()) axes_.emplace_back(name);
    return static_cast<std::uint32_t>(number);
  }

  void add(std::size_t s, double stream_ended) {
    const Step& step = schedule_.steps[s];
    const Stream& stream = schedule_[step.stream];
    const double start = timeline_.steps[s].start.value, finish = timeline_.steps[s].finish.value;
    const auto span = [&](TimeCause cause, std::uint32_t device, std::uint32_t number = 0) {
      spans_[device].push_back({start, finish, cause, number, static_cast<std::uint32_t>(s)});
    };
    const std::uint32_t device = stream.device.index;
    if (step.op != no_op) add_issue(step, device, start, stream_ended);
    const auto exchange = step.op == no_op ? std::nullopt : collective_of(problem_.graph[step.op]);
    if (step.work.is_transfer()) {
      const MemoryId to = schedule_.routes[step.work.route.index].to;
      const std::optional<DeviceId> receiver = problem_.platform[to].device;
      if (step.kind == StepKind::collective) return span(TimeCause::exchanges, device, axis(replicas_axis));
      if (step.kind == StepKind::send && receiver) {
        return span(TimeCause::receives, receiver->index, axis(pipeline_axis));
      }
      return span(TimeCause::copies, device);
    }
    if (exchange) return span(TimeCause::exchanges, device, axis(exchange->axis));
    if (step.kind == StepKind::collective) return span(TimeCause::exchanges, device, axis(replicas_axis));
    if (stream.way.computes_elsewhere()) {
      return span(step.kind == StepKind::update ? TimeCause::updates_on_host : TimeCause::copies, device);
    }
    span(TimeCause::computes, device, static_cast<std::uint32_t>(s));
    add_awaited_send(step, device, stream_ended);
    if (step.op == no_op || step.kind == StepKind::update) return;
    if (step.kind == StepKind::forward) {
      last_forward_[device] = std::max(last_forward_[device], finish);
    } else {
      first_backward_[device] = std::min(first_backward_[device], start);
    }
  }

  /// A value that the device has sent, where nothing that the step waits for comes later.
  void add_awaited_send(const Step& step, std::uint32_t device, double stream_ended) {
    std::optional<StepId> last;
    Interval latest{.start = {}, .finish = Seconds{stream_ended}};
    for (const StepId wait : schedule_.waits_of(step)) {
      if (timeline_.steps[wait.index].finish <= latest.finish) continue;
      latest = timeline_.steps[wait.index];
      last = wait;
    }
    if (!last || schedule_[*last].kind != StepKind::send || !schedule_[*last].work.is_transfer()) return;
    if (schedule_[schedule_[*last].stream].device.index != device) return;
    spans_[device].push_back(
        {latest.start.value, latest.finish.value, TimeCause::receives, axis(pipeline_axis), last->index});
  }

  /// What its host has not issued when everything else is there.
  void add_issue(const Step& step, std::uint32_t device, double start, double stream_ended) {
    if (problem_.platform.devices[device].host_launch == Seconds{}) return;
    double ready = stream_ended;
    for (const StepId wait : schedule_.waits_of(step)) {
      ready = std::max(ready, timeline_.steps[wait.index].finish.value);
    }
    if (ready < start) spans_[device].push_back({ready, start, TimeCause::is_issued});
  }

  OfDevice of_device(std::uint32_t device) {
    struct Change {
      double date;
      bool begins;
      std::uint32_t span;
    };
    const std::vector<Span>& spans = spans_[device];
    std::vector<Change> changes;
    for (std::size_t k = 0; k < spans.size(); ++k) {
      if (spans[k].finish <= spans[k].start) continue;
      changes.push_back({spans[k].start, true, static_cast<std::uint32_t>(k)});
      changes.push_back({spans[k].finish, false, static_cast<std::uint32_t>(k)});
    }
    const auto key = [](const Change& c) { return std::tuple(c.date, c.begins, c.span); };
    put_in_order(changes, key);
    OfDevice made;
    std::array<SpanNumbers, causes> now;  // by cause
    std::vector<double> computed(spans.size(), 0);
    double date = 0;
    const auto pass = [&](double until) {
      if (until > date) attribute(device, date, until, now, computed, made);
      date = std::max(date, until);
    };
    for (const Change& change : changes) {
      pass(change.date);
      SpanNumbers& of_cause = now[static_cast<std::size_t>(spans[change.span].cause)];
      const auto at = std::ranges::lower_bound(of_cause, change.span);
      if (change.begins) {
        of_cause.insert(at, change.span);
      } else {
        of_cause.erase(at);
      }
    }
    pass(timeline_.makespan.value);
    for (std::size_t k = 0; k < spans.size(); ++k) {
      if (computed[k] > 0) add_computed(device, spans[k].number, computed[k], made);
    }
    return made;
  }

  void attribute(std::uint32_t device, double from, double until, const std::array<SpanNumbers, causes>& now,
                 std::vector<double>& computed, OfDevice& made) const {
    const auto first = std::ranges::find_if(now, [](const auto& spans) { return !spans.empty(); });
    const auto cause = static_cast<TimeCause>(first - now.begin());
    using enum TimePartKind;
    double time = until - from;
    if (cause != TimeCause::computes && cause != TimeCause::nothing) {
      const double beyond = time * contended(spans_[device][first->front()].step);
      made.contention += beyond;
      time -= beyond;
    }
    switch (cause) {
      case TimeCause::computes:
        for (const std::uint32_t k : *first) computed[k] += time / static_cast<double>(first->size());
        break;
      case TimeCause::exchanges:
      case TimeCause::receives:
        made.exchange[axes_[spans_[device][first->front()].number]] += time;
        break;
      case TimeCause::updates_on_host:
        made[updates] += time;
        break;
      case TimeCause::copies:
        made[copies] += time;
        break;
      case TimeCause::is_issued:
        made[launches] += time;
        break;
      case TimeCause::nothing: {
        const double steady = std::min(until, last_forward_[device]) - std::max(from, first_backward_[device]);
        made[waits] += std::max(0.0, steady);
        made[fill_and_drain] += until - from - std::max(0.0, steady);
        break;
      }
    }
  }

  /// Of a step `seconds`, as far as no other one computes at the same time.
  void add_computed(std::uint32_t device, std::uint32_t s, double seconds, OfDevice& made) {
    const Step& step = schedule_.steps[s];
    const double uncontended = 1 - contended(s);
    made.contention += (1 - uncontended) * seconds;
    seconds *= uncontended;
    using enum TimePartKind;
    if (step.kind == StepKind::update || step.kind == StepKind::evaluation) {
      made[step.kind == StepKind::update ? updates : evaluation] += seconds;
      return;
    }
    if (step.kind == StepKind::pack || step.kind == StepKind::unpack) {
      made[copies] += seconds;
      return;
    }
    if (step.op == no_op) {
      made[kernels] += seconds;
      return;
    }
    const OpParts& parts = parts_.of(step.op, step.implementation, DeviceId{device});
    const bool saves = saves_for_backward(schedule_, step, problem_.graph[step.op]);
    double known = (parts.ideal + parts.launches + parts.again).value;
    for (const ExchangeShare& each : parts_.exchanges(step.op)) {
      known += (saves ? each.exposed : each.exposed_unsaved).value;
    }
    const Interval& ran = timeline_.steps[s];
    const double share = seconds / std::max(known, uncontended * (ran.finish - ran.start).value);
    double rest = seconds;
    for (const ExchangeShare& each : parts_.exchanges(step.op)) {
      const double exposed = share * (saves ? each.exposed : each.exposed_unsaved).value;
      made.exchange[each.axis] += exposed;
      rest -= exposed;
    }
    rest = std::max(0.0, rest);
    if (step.kind == StepKind::recompute) {
      made[recomputation] += rest;
      return;
    }
    made[ideal] += share * parts.ideal.value;
    made[launches] += share * parts.launches.value;
    made[recomputation] += share * parts.again.value;
    made[kernels] += std::max(0.0, rest - share * (parts.ideal + parts.launches + parts.again).value);
  }

  const Problem& problem_;
  const Schedule& schedule_;
  const Timeline& timeline_;
  PartsOfOps parts_;
  std::vector<std::vector<Span>> spans_;               // by device
  std::vector<double> first_backward_, last_forward_;  // by device: dates
  std::vector<std::string> axes_;
  std::vector<double> contended_;  // by step: shares; empty: not apart
};

}  // namespace

std::vector<TimePart> time_parts(const Problem& problem, const Schedule& schedule, const Timeline& timeline) {
  EXPECTS(timeline.steps.size() == schedule.steps.size());
  return Parting(problem, schedule, timeline).run();
}

std::vector<DeviceTime> time_by_device(const Problem& problem, const Schedule& schedule, const Timeline& timeline) {
  EXPECTS(timeline.steps.size() == schedule.steps.size());
  Parting parting(problem, schedule, timeline);
  parting.set_contention_apart(without_contention(schedule, problem.platform));
  return parting.by_device();
}

}  // namespace plimsoll
