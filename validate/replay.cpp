#include "validate/replay.h"

#include "sim/core/check.h"

namespace plimsoll {
namespace {

std::variant<ReplayPlan, ReplayFailure> judged_plan(const Problem& problem, const Schedule& schedule,
                                                    const Network& network) {
  const std::vector<Violation> violations = check(schedule, problem.graph, problem.platform, 1);
  if (violations.empty()) return replay_plan(problem, schedule, network);
  return ReplayFailure{"refused, the schedule is not legal: " + name_of(violations[0].rule) + ": " +
                       violations[0].what};
}

}  // namespace

std::variant<Replayed, ReplayFailure> replay(const Problem& problem, const Schedule& schedule, RunnableNetwork& network,
                                             const ReplayOptions& options) {
  const std::variant<ReplayPlan, ReplayFailure> plan = judged_plan(problem, schedule, network.network());
  if (const auto* failure = std::get_if<ReplayFailure>(&plan)) return *failure;
  return network.run(problem, schedule, std::get<ReplayPlan>(plan), options);
}

std::variant<Replayed, ReplayFailure> replay(const Problem& problem, const Schedule& schedule,
                                             const CpuNetwork& network, BlockPool& pool, const ReplayOptions& options) {
  const std::variant<ReplayPlan, ReplayFailure> plan = judged_plan(problem, schedule, network.network);
  if (const auto* failure = std::get_if<ReplayFailure>(&plan)) return *failure;
  return replay_on_cpu(problem, schedule, std::get<ReplayPlan>(plan), network, pool, options);
}

}  // namespace plimsoll
