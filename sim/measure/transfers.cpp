#include "sim/measure/transfers.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "sim/core/expects.h"

namespace plimsoll {
namespace {

class Rewrite {
 public:
  Rewrite(const Schedule& from, const Platform& platform, Transfers how) : from_(from), how_(how) {
    RouteFinder finder(platform);
    for (const Endpoints& ends : from.routes) routes_.push_back(finder.between(ends.from, ends.to));
    compute_.resize(platform.devices.size());
    for (std::size_t s = 0; s < from.streams.size(); ++s) {
      if (from.streams[s].way.computes()) compute_[from.streams[s].device.index] = id_at<StreamId>(s);
    }
    made_.schedule = from;
    made_.schedule.steps.clear();
    made_.schedule.wait_list.clear();
  }

  Retimed run() {
    const bool holds_up = how_ == Transfers::blocking || how_ == Transfers::added;
    held_.resize(from_.steps.size(), false);
    before_.resize(from_.steps.size());
    for (std::size_t s = 0; s < from_.steps.size(); ++s) {
      const Step& step = from_.steps[s];
      if (step.kind == StepKind::send && step.work.is_transfer()) {
        send(id_at<StepId>(s), holds_up);
        continue;
      }
      if (holds_up && from_[step.stream].way.computes()) hold_up_receiver(step);
      add(id_at<StepId>(s), step, waits_of(step));
    }
    return std::move(made_);
  }

 private:
  std::vector<StepId> waits_of(const Step& step) const {
    std::vector<StepId> waits;
    for (const StepId wait : from_.waits_of(step)) waits.push_back(made_.steps[wait.index]);
    return waits;
  }

  void add(StepId of, const Step& step, const std::vector<StepId>& waits) {
    EXPECTS(made_.steps.size() == of.index);
    made_.steps.push_back(made_.add(step, waits));
  }

  /// Takes its time alone: on the sender's computing stream, or on a stream of its own.
  void send(StepId s, bool holds_up) {
    Step step = from_[s];
    const std::optional<Route>& route = routes_[step.work.route.index];
    EXPECTS(route);
    const Seconds takes = route->latency + step.work.seconds + step.work.bytes / route->bandwidth;
    step.work = {.seconds = how_ == Transfers::none ? Seconds{} : takes, .bytes = {}};
    const DeviceId sender = from_[step.stream].device;
    const std::vector<StepId> waits = waits_of(step);
    if (holds_up) {
      step.stream = *compute_[sender.index];
      Step begins = nothing_on(step.stream);
      before_[s.index] = made_.add(begins, waits);
      add(s, step, {});
    } else {
      step.stream = id_at<StreamId>(made_.schedule.streams.size());
      made_.schedule.streams.push_back(from_[from_[s].stream]);
      add(s, step, waits);
    }
  }

  static Step nothing_on(StreamId stream) {
    Step step;
    step.kind = StepKind::send;
    step.stream = stream;
    return step;
  }

  /// Before the first step that reads what was sent.
  void hold_up_receiver(const Step& reader) {
    for (const StepId wait : from_.waits_of(reader)) {
      if (!before_[wait.index] || held_[wait.index]) continue;
      held_[wait.index] = true;
      Step held = nothing_on(reader.stream);
      held.work.seconds = made_.schedule[made_.steps[wait.index]].work.seconds;
      made_.add(held, {how_ == Transfers::blocking ? *before_[wait.index] : made_.steps[wait.index]});
    }
  }

  const Schedule& from_;
  Transfers how_;
  std::vector<std::optional<Route>> routes_;
  std::vector<std::optional<StreamId>> compute_;  // by device
  std::vector<bool> held_;                        // by step that sends: the receiver has been held up
  std::vector<std::optional<StepId>> before_;     // by step that sends and holds up: what begins with it
  Retimed made_;
};

}  // namespace

StepId Retimed::add(Step step, const std::vector<StepId>& waits) {
  step.waits = {static_cast<std::uint32_t>(schedule.wait_list.size()), static_cast<std::uint32_t>(waits.size())};
  schedule.wait_list.insert(schedule.wait_list.end(), waits.begin(), waits.end());
  schedule.steps.push_back(step);
  return id_at<StepId>(schedule.steps.size() - 1);
}

Retimed with_transfers(const Schedule& schedule, const Platform& platform, Transfers how) {
  EXPECTS(how != Transfers::link);
  return Rewrite(schedule, platform, how).run();
}

Timeline of_first(const Retimed& made, Timeline timeline) {
  std::vector<Interval> steps;
  steps.reserve(made.steps.size());
  for (const StepId s : made.steps) steps.push_back(timeline.steps[s.index]);
  timeline.steps = std::move(steps);
  for (MemoryPeak& peak : timeline.peaks) {  // what holds devices up allocates nothing
    const auto step = std::ranges::lower_bound(made.steps, peak.step);
    if (!peak.at_start) peak.step = id_at<StepId>(static_cast<std::size_t>(step - made.steps.begin()));
  }
  return timeline;
}

}  // namespace plimsoll
