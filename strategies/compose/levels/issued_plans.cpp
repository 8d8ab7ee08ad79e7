#include "strategies/compose/levels/issued_plans.h"

#include <algorithm>

#include "sim/core/tolerance.h"
#include "sim/engine/event/event_engine.h"
#include "sim/measure/host_issue.h"
#include "sim/model/device_classes.h"
#include "sim/model/op_times.h"
#include "strategies/api/front.h"
#include "strategies/api/own_moves.h"
#include "strategies/list.h"

namespace plimsoll {
namespace {

/// Whether schedules of the passes' class compute on one device, and nothing else: then sums bound their times.
bool only_compute(const Problem& problem, std::span<const Pass> passes) {
  const auto computes = [](const Pass& pass) {
    const OwnMovesOptions* own = pass.options.get_if<OwnMovesOptions>();
    return pass.strategy->family == Family::rematerialization && (own == nullptr || own->offload == OwnMoves::no);
  };
  return !problem.mesh && std::ranges::all_of(passes, computes);
}

PlannedParts as_issued(const Problem& problem, PlannedParts made) {
  const Retimed issued = issued_by_hosts(plan_of(problem, made, std::nullopt).schedule, problem);
  const Timeline timeline = simulate_event(issued.schedule, problem.platform);
  made.peak = {};
  for (const Device& device : problem.platform.devices) {
    made.peak = std::max(made.peak, timeline.peaks[device.memory.index].bytes);
  }
  made.makespan = timeline.makespan;
  return made;
}

}  // namespace

std::vector<PartsOutcome> plans_with_hosts(const Problem& problem, std::span<const Pass> passes,
                                           std::span<const std::optional<Bytes>> budgets,
                                           const PlannedWithoutHosts& planned) {
  std::vector<PartsOutcome> outcomes = planned(problem);
  if (!have_issuing_hosts(problem.platform)) return outcomes;
  FrontOf<PlannedParts> front;
  std::vector<Seconds> least(budgets.size());  // that the best of the class takes; 0: not known
  bool are_late = false;                       // by their hosts
  const auto add = [&](const std::vector<PartsOutcome>& others, bool is_bound) {
    for (std::size_t b = 0; b < others.size(); ++b) {
      const PlannedParts* made = std::get_if<PlannedParts>(&others[b]);
      if (made == nullptr) continue;
      if (is_bound && made->gap) least[b] = std::max(least[b], 1 / (1 + *made->gap) * made->makespan);
      PlannedParts issued = as_issued(problem, *made);
      are_late |= !agree(issued.makespan.value, made->makespan.value);
      front.add(std::move(issued));
    }
  };
  add(outcomes, true);
  const auto is_rule = [](const Pass& pass) { return pass.strategy == &policy_strategy; };  // of a framework
  const bool may_choose = std::ranges::none_of(passes, is_rule);
  if (are_late && may_choose && device_classes(problem.platform, problem.platform.devices.size()).one.size() == 1) {
    for (const double share : {0.5, 1.0}) {  // of the hosts' time in the sum
      const auto sum = [&](Seconds device, Seconds issue) { return share * issue + (1 - share) * device; };
      add(planned(with_op_times(problem, sum)), only_compute(problem, passes));
    }
    const auto longer = [](Seconds device, Seconds issue) { return std::max(device, issue); };
    add(planned(with_op_times(problem, longer)), false);
  }
  for (std::size_t b = 0; b < budgets.size(); ++b) {
    PlannedParts* own = std::get_if<PlannedParts>(&outcomes[b]);
    if (own == nullptr) continue;
    const PlannedParts* best = front.at(budgets[b]);
    *own = best != nullptr ? *best : as_issued(problem, *own);
    own->gap = least[b] > Seconds{0} ? relative_gap(own->makespan, least[b], model_tolerance) : std::nullopt;
  }
  return outcomes;
}

}  // namespace plimsoll
