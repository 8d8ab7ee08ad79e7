#include "sim/measure/critical_path.h"

#include <algorithm>
#include <optional>

#include "sim/core/expects.h"
#include "sim/core/tolerance.h"

namespace plimsoll {
namespace {

/// By step: the one before it on its stream.
std::vector<std::optional<StepId>> before_on_streams(const Schedule& schedule) {
  std::vector<std::optional<StepId>> last(schedule.streams.size()), before;
  before.reserve(schedule.steps.size());
  for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
    std::optional<StepId>& of_stream = last[schedule.steps[s].stream.index];
    before.push_back(of_stream);
    of_stream = id_at<StepId>(s);
  }
  return before;
}

}  // namespace

std::vector<StepId> critical_path(const Schedule& schedule, const Timeline& timeline) {
  EXPECTS(timeline.steps.size() == schedule.steps.size());
  if (schedule.steps.empty()) return {};
  const std::vector<std::optional<StepId>> before = before_on_streams(schedule);
  const auto finish = [&](StepId s) { return timeline.steps[s.index].finish; };
  const auto latest = std::ranges::max_element(timeline.steps, {}, &Interval::finish);
  std::vector<StepId> chain{id_at<StepId>(static_cast<std::size_t>(latest - timeline.steps.begin()))};
  while (true) {
    const StepId s = chain.back();
    std::optional<StepId> last = before[s.index];
    for (const StepId wait : schedule.waits_of(schedule[s])) {
      if (!last || finish(wait) > finish(*last)) last = wait;
    }
    const Seconds free = last ? finish(*last) : Seconds{};
    EXPECTS(timeline.steps[s.index].start - free <= model_tolerance * timeline.makespan);
    if (!last) break;
    chain.push_back(*last);
  }
  std::ranges::reverse(chain);
  return chain;
}

}  // namespace plimsoll
