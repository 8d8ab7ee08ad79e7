#include "strategies/placement/lists/list_schedulers.h"

namespace plimsoll {

Infeasible nowhere_to_run() {
  return {.reason = "no processor that has memory runs all that must be together", .smallest = std::nullopt};
}

PlacementOutcome without_makespan(ListOutcome outcome) {
  if (Infeasible* none = std::get_if<Infeasible>(&outcome)) return std::move(*none);
  return std::move(std::get<ListSchedule>(outcome).placement);
}

}  // namespace plimsoll
