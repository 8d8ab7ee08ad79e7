#include "sim/memory/replay_order.h"

#include <algorithm>
#include <tuple>

namespace plimsoll {

std::vector<ReplayEvent> replay_order(const Schedule& schedule, const Timeline& timeline, const StepOrders& orders) {
  std::vector<ReplayEvent> events;
  for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
    const Step& step = schedule.steps[s];
    const Interval& ran = timeline.steps[s];
    const bool works = step.workspace > Bytes{0};
    const auto id = id_at<StepId>(s);
    const bool is_ordered = !orders.steps.empty() && orders.steps[s];
    if (works || is_ordered || step.allocates.count > 0 || step.frees.count > 0)
      events.push_back({ran.start, ran.start_round, true, step.stream, id});
    if (!works && step.frees.count == 0) continue;
    // A measured timeline knows no rounds; a step of zero duration still allocates before it frees.
    const bool instant = ran.finish == ran.start;
    const std::uint32_t round = instant ? std::max(ran.finish_round, ran.start_round + 1) : ran.finish_round;
    events.push_back({ran.finish, round, false, step.stream, id});
  }
  std::ranges::sort(events, {},
                    [](const ReplayEvent& e) { return std::tuple(e.date, e.round, e.starts, e.stream, e.step); });
  return events;
}

}  // namespace plimsoll
