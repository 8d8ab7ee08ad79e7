#include "tests/generate/bound_of_schedule.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "sim/bound/iteration_bound.h"
#include "sim/measure/metrics.h"

namespace plimsoll {
namespace {

bool takes_in_turn(const Schedule& schedule, const Graph& graph) {
  std::uint32_t micro_batch = 0;
  for (const Step& step : schedule.steps) {
    if (step.op == no_op || graph[step.op].phase == Phase::update) continue;
    if (step.micro_batch < micro_batch) return false;
    micro_batch = step.micro_batch;
  }
  return true;
}

}  // namespace

Seconds bound_of(const Problem& problem, const Schedule& schedule, Bytes peak) {
  if (devices_used(schedule) != 1 || !schedule.updates.are_synchronous()) return {};
  const auto computes = [&](const Step& step) {
    return step.op != no_op && !schedule[step.stream].way.computes_elsewhere();
  };
  const auto first = std::ranges::find_if(schedule.steps, computes);
  if (first == schedule.steps.end()) return {};
  const DeviceId device = schedule[first->stream].device;
  const bool copies = std::ranges::any_of(schedule.steps, [](const Step& step) { return step.work.is_transfer(); });
  IterationBounds bounds(problem, device,
                         {.stay = stays_in(schedule, problem.graph, problem.platform),
                          .codecs = schedule.codecs,
                          .out = copies ? ways_out(problem.platform, device) : BytesPerSecond{},
                          .in_turn = takes_in_turn(schedule, problem.graph)});
  std::vector<OpId> instants;
  const std::size_t ops = problem.graph.ops.size(), step = ops / 40 + 1;
  for (std::size_t o = 0; o < ops; o += step) instants.push_back(id_at<OpId>(o));
  constexpr std::size_t few = 24;  // so that it takes little time
  const IterationBound bound =
      ops <= few && instants.size() == ops ? bounds.within_whole_values(peak) : bounds.within(peak, instants);
  return bound.needs ? Seconds{std::numeric_limits<double>::infinity()} : bound.time;
}

}  // namespace plimsoll
