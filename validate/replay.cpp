#include "validate/replay.h"

#include "sim/judge/check.h"

namespace plimsoll {

std::variant<Replayed, ReplayFailure> replay(const Problem& problem, const Schedule& schedule, RunnableNetwork& network,
                                             const ReplayOptions& options) {
  const std::vector<Violation> violations = check(schedule, problem.graph, problem.platform, 1);
  if (!violations.empty())
    return ReplayFailure{"refused, the schedule is not legal: " + name_of(violations[0].rule) + ": " +
                         violations[0].what};
  if (options.addresses != nullptr) {
    const std::optional<WrongAddress> wrong = wrong_address(schedule, problem.platform, *options.addresses);
    if (wrong) return ReplayFailure{"refused, addresses are wrong: " + wrong->what};
  }
  const std::variant<ReplayPlan, ReplayFailure> plan =
      replay_plan(problem, schedule, network.network(), options.addresses);
  if (const auto* failure = std::get_if<ReplayFailure>(&plan)) return *failure;
  return network.run(problem, schedule, std::get<ReplayPlan>(plan), options);
}

}  // namespace plimsoll
