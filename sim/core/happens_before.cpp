#include "sim/core/happens_before.h"

#include <algorithm>

#include "sim/core/expects.h"

namespace plimsoll {

HappensBefore::HappensBefore(const Schedule& schedule) : schedule_(schedule) {
  const std::size_t streams = schedule.streams.size();
  std::vector<std::uint32_t> issued(streams, 0);
  std::vector<std::uint32_t> current(streams);  // the clock of each stream's last step
  for (std::size_t s = 0; s < streams; ++s) {
    current[s] = static_cast<std::uint32_t>(clocks_.size());
    clocks_.emplace_back(streams, 0U);
  }
  position_.reserve(schedule.steps.size());
  clock_.reserve(schedule.steps.size());
  for (const Step& step : schedule.steps) {
    const std::uint32_t stream = step.stream.index;
    const auto waits = schedule.waits_of(step);
    if (!waits.empty()) {
      std::vector<std::uint32_t> merged = clocks_[current[stream]];
      for (const StepId wait : waits) {
        EXPECTS(wait.index < position_.size());
        const std::vector<std::uint32_t>& other = clocks_[clock_[wait.index]];
        for (std::size_t s = 0; s < streams; ++s) merged[s] = std::max(merged[s], other[s]);
        const std::uint32_t on = schedule[wait].stream.index;
        merged[on] = std::max(merged[on], position_[wait.index]);
      }
      current[stream] = static_cast<std::uint32_t>(clocks_.size());
      clocks_.push_back(std::move(merged));
    }
    position_.push_back(++issued[stream]);
    clock_.push_back(current[stream]);
  }
}

bool HappensBefore::operator()(StepId a, StepId b) const {
  const StreamId on = schedule_[a].stream;
  if (on == schedule_[b].stream) return a < b;
  return clocks_[clock_[b.index]][on.index] >= position_[a.index];
}

}  // namespace plimsoll
