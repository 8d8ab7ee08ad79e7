#include "experiments/study/class_bound.h"

#include <algorithm>

#include "sim/core/expects.h"
#include "sim/core/tolerance.h"
#include "sim/measure/host_issue.h"
#include "sim/measure/lower_bounds.h"
#include "sim/model/evaluation_forward.h"
#include "sim/model/op_times.h"
#include "strategies/api/own_moves.h"
#include "strategies/list.h"

namespace plimsoll {
namespace {

constexpr DeviceId the_device{0};

bool asks_others(const Pass& pass) {
  return pass.strategy == &portfolio_strategy;
}

/// Whether values may leave the device.
bool offloads(const Pass& pass) {
  const OwnMovesOptions* own = pass.options.get_if<OwnMovesOptions>();
  return pass.strategy->family == Family::offloading || asks_others(pass) ||
         (own != nullptr && own->offload != OwnMoves::no);
}

}  // namespace

bool changes_its_problem(std::string_view pipeline) {
  const StrategyInfo* first = find_strategy(pipeline.substr(0, pipeline.find_first_of("(|")));
  return first != nullptr && changes_problem(*first);
}

bool packs(std::span<const Pass> passes) {
  return std::ranges::any_of(passes, [](const Pass& pass) { return pass.strategy->family == Family::compression; });
}

Stays stays_with(std::span<const Pass> passes) {
  const auto may_leave = [](const Pass& pass) {
    return pass.strategy->moves_parameters() || pass.strategy->partitions();
  };
  return std::ranges::any_of(passes, may_leave) ? Stays::nothing : Stays::all;
}

ClassBounds::ClassBounds(const Problem& problem, std::span<const Pass> passes) : problem_(problem) {
  if (problem.evaluation) evaluation_ = evaluation_share(problem, the_device);
  const auto on_several = [](const Pass& pass) { return pass.strategy->partitions() || pass.strategy->decides(); };
  if (problem.mesh || std::ranges::any_of(passes, on_several)) return;
  const bool moves = std::ranges::any_of(passes, offloads);
  rules_ = BoundRules{.stay = std::ranges::any_of(passes, asks_others) && moves ? Stays::nothing : stays_with(passes),
                      .out = moves ? ways_out(problem.platform, the_device) : BytesPerSecond{}};
}

IterationBounds& ClassBounds::of(const std::vector<Codec>& codecs) {
  if (bounds_ && codecs == codecs_) return *bounds_;
  codecs_ = codecs;
  BoundRules rules = *rules_;
  rules.codecs = codecs_;
  bounds_ = std::make_unique<IterationBounds>(problem_, the_device, rules);
  return *bounds_;
}

/// What the host takes to issue all that runs, and runs again for want of memory where nothing moves and nothing is
/// packed.
Seconds ClassBounds::least_issue(const Schedule& schedule, std::optional<Bytes> budget) {
  if (!have_issuing_hosts(problem_.platform)) return {};
  if (!issued_) {
    issued_ = with_op_times(problem_, [](Seconds, Seconds issue) { return issue; });
    issued_->evaluation.reset();
  }
  if (rules_->out > BytesPerSecond{} || !schedule.codecs.empty()) {
    return lower_bounds(*issued_, 1, Stays::nothing).work;
  }
  if (!of_issue_) of_issue_ = std::make_unique<IterationBounds>(*issued_, the_device, *rules_);
  return of_issue_->within(budget).time;
}

std::optional<double> ClassBounds::gap(const Schedule& schedule, const Timeline& timeline,
                                       std::optional<Bytes> budget) {
  if (!rules_ || !schedule.updates.are_synchronous()) return std::nullopt;
  IterationBounds& bounds = of(schedule.codecs);
  const MemoryPeak& moment = timeline.peaks[problem_.platform[the_device].memory.index];
  const OpId fullest = moment.at_start ? no_op : schedule[moment.step].op;
  const IterationBound bound =
      fullest == no_op ? bounds.within(budget) : bounds.within(budget, fullest, timeline.makespan - evaluation_);
  EXPECTS(!bound.needs);  // the schedule fits
  const Seconds least = std::max(bound.time, least_issue(schedule, budget)) + evaluation_;
  if (!(least > Seconds{0})) return std::nullopt;
  const double gap = timeline.makespan / least - 1;
  EXPECTS(gap > -model_tolerance);
  return beyond_rounding(gap, model_tolerance);
}

}  // namespace plimsoll
