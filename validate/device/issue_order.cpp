#include "validate/device/issue_order.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <tuple>

#include "sim/core/expects.h"
#include "validate/memory_ledger.h"

namespace plimsoll {
namespace {

/// Of every step: its predecessor on the stream and what it waits for.
std::vector<std::vector<StepId>> needed_steps(const Schedule& schedule) {
  std::vector<std::vector<StepId>> needs(schedule.steps.size());
  std::vector<std::optional<StepId>> last(schedule.streams.size());
  for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
    const Step& step = schedule.steps[s];
    needs[s].assign(schedule.waits_of(step).begin(), schedule.waits_of(step).end());
    std::optional<StepId>& before = last[step.stream.index];
    if (before) needs[s].push_back(*before);
    before = id_at<StepId>(s);
  }
  return needs;
}

/// What decides between events that may both come next: the order in which sim/memory replays a timeline.
using Priority = std::tuple<Seconds, std::uint32_t, bool, StreamId, StepId>;

Priority priority(const Schedule& schedule, const std::optional<Timeline>& expected, IssueEvent event) {
  const StreamId stream = schedule[event.step].stream;
  if (!expected) return {Seconds{static_cast<double>(event.step.index)}, 0, event.begins, stream, event.step};
  const Interval& ran = expected->steps[event.step.index];
  if (event.begins) return {ran.start, ran.start_round, true, stream, event.step};
  const bool instant = ran.finish == ran.start;
  const std::uint32_t round = instant ? std::max(ran.finish_round, ran.start_round + 1) : ran.finish_round;
  return {ran.finish, round, false, stream, event.step};
}

}  // namespace

std::vector<IssueEvent> issue_order(const Schedule& schedule, const std::optional<Timeline>& expected) {
  EXPECTS(!expected || expected->steps.size() == schedule.steps.size());
  const std::vector<std::vector<StepId>> needs = needed_steps(schedule);
  std::vector<std::size_t> missing;
  std::vector<std::vector<StepId>> dependents(needs.size());
  std::priority_queue<Priority, std::vector<Priority>, std::greater<>> ready;
  const auto offer = [&](IssueEvent event) { ready.push(priority(schedule, expected, event)); };
  for (std::size_t s = 0; s < needs.size(); ++s) {
    missing.push_back(needs[s].size());
    for (const StepId need : needs[s]) dependents[need.index].push_back(id_at<StepId>(s));
    if (needs[s].empty()) offer({id_at<StepId>(s), true});
  }
  std::vector<IssueEvent> order;
  while (!ready.empty()) {
    const IssueEvent event{std::get<StepId>(ready.top()), std::get<bool>(ready.top())};
    ready.pop();
    order.push_back(event);
    if (event.begins) {
      offer({event.step, false});
      continue;
    }
    for (const StepId next : dependents[event.step.index]) {
      if (--missing[next.index] == 0) offer({next, true});
    }
  }
  EXPECTS(order.size() == 2 * schedule.steps.size());
  return order;
}

Timeline measured_timeline(const Schedule& schedule, const Platform& platform, std::span<const IssueEvent> order,
                           const std::vector<Interval>& measured) {
  EXPECTS(order.size() == 2 * measured.size());
  Timeline timeline;
  timeline.steps = measured;
  if (measured.empty()) return timeline;
  const std::vector<std::vector<StepId>> needs = needed_steps(schedule);
  const Seconds first = std::ranges::min(measured, {}, &Interval::start).start;
  for (const IssueEvent event : order) {
    Interval& ran = timeline.steps[event.step.index];
    if (event.begins) {
      ran.start = ran.start - first;
      for (const StepId need : needs[event.step.index]) {
        ran.start = std::max(ran.start, timeline.steps[need.index].finish);
      }
    } else {
      ran.finish = std::max(ran.finish - first, ran.start);
    }
  }
  const auto date = [&](IssueEvent event) {
    const Interval& ran = timeline.steps[event.step.index];
    return event.begins ? ran.start : ran.finish;
  };
  std::vector<IssueEvent> by_date(order.begin(), order.end());
  std::ranges::stable_sort(by_date, {}, date);  // at one date as they were issued

  std::vector<MemoryLedger> ledgers(platform.memories.size(), MemoryLedger(std::nullopt));
  for (const BufferId b : schedule.resident) ledgers[schedule[b].memory.index].take(schedule[b].bytes, std::nullopt);
  Seconds last{-1};
  std::uint32_t round = 0;
  for (const IssueEvent event : by_date) {
    Interval& ran = timeline.steps[event.step.index];
    round = date(event) == last ? round + 1 : 0;
    last = date(event);
    (event.begins ? ran.start_round : ran.finish_round) = round;
    const Step& step = schedule[event.step];
    std::vector<Bytes> sums(ledgers.size());
    sums[platform[schedule[step.stream].device].memory.index] += step.workspace;
    for (const BufferId b : schedule.buffers_in(event.begins ? step.allocates : step.frees)) {
      sums[schedule[b].memory.index] += schedule[b].bytes;
    }
    for (std::size_t m = 0; m < sums.size(); ++m) {
      if (event.begins) {
        ledgers[m].take(sums[m], event.step);
      } else {
        ledgers[m].give_back(sums[m]);
      }
    }
    timeline.makespan = std::max(timeline.makespan, ran.finish);
  }
  for (const MemoryLedger& ledger : ledgers) timeline.peaks.push_back(ledger.peak());
  return timeline;
}

}  // namespace plimsoll
