#include "experiments/library/verdict.h"

#include <fmt/format.h>

#include <algorithm>

#include "experiments/study/run.h"
#include "sim/io/quantity.h"

namespace plimsoll {
namespace {

Bytes fullest_device(const std::vector<Bytes>& peaks, const Platform& platform) {
  Bytes largest;
  for (const Device& device : platform.devices) largest = std::max(largest, peaks[device.memory.index]);
  return largest;
}

}  // namespace

Verdict verdict_on(const Schedule& schedule, const Platform& platform) {
  Timeline timeline = simulate(schedule, platform, Engine::event);
  const std::vector<Bytes> peaks = recount(schedule, timeline, platform);
  return {.timeline = std::move(timeline),
          .peak = fullest_device(peaks, platform),
          .over = overfull(peaks, platform, schedule),
          .measured = static_cast<std::size_t>(std::ranges::count_if(schedule.steps, &Step::measured))};
}

std::string text_of(const Verdict& verdict, const Schedule& schedule, const Platform& platform) {
  std::string text = fmt::format("legal: {} steps, {}, peak {} B", schedule.steps.size(),
                                 format_seconds(verdict.timeline.makespan), verdict.peak.count);
  for (const Overfull& memory : verdict.over) {
    const Memory& of = platform[memory.memory];
    text += of.device && schedule.budget
                ? fmt::format(", over its budget of {} B on '{}'", memory.limit.count, of.name)
                : fmt::format(", {} B on '{}', over its {} B", memory.peak.count, of.name, memory.limit.count);
  }
  if (verdict.measured > 0) {
    text += fmt::format("; {} of the steps state times and workspaces as measured, which no model confirms",
                        verdict.measured);
  }
  return text + "\n";
}

}  // namespace plimsoll
