#include "validate/cpu/step_needs.h"

#include <algorithm>
#include <optional>

namespace plimsoll {

StepNeeds needs_of(const Schedule& schedule) {
  StepNeeds made{{}, std::vector<std::vector<StepId>>(schedule.steps.size()), {}};
  std::vector<std::optional<StepId>> last(schedule.streams.size());
  for (std::size_t i = 0; i < schedule.steps.size(); ++i) {
    const Step& step = schedule.steps[i];
    const auto s = id_at<StepId>(i);
    std::vector<StepId> needs(schedule.waits_of(step).begin(), schedule.waits_of(step).end());
    if (last[step.stream.index]) needs.push_back(*last[step.stream.index]);
    std::ranges::sort(needs);
    // Not ranges::unique: clang 14, which lints and fuzzes, cannot read GCC 12's.
    needs.erase(std::unique(needs.begin(), needs.end()), needs.end());
    made.missing.push_back(static_cast<std::uint32_t>(needs.size()));
    for (const StepId need : needs) made.dependents[need.index].push_back(s);
    if (needs.empty()) made.ready.push_back(s);
    last[step.stream.index] = s;
  }
  return made;
}

}  // namespace plimsoll
