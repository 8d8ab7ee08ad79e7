#pragma once
// Planners that take one op after the other and put each where it starts or ends first.

#include "strategies/placement/placing.h"

namespace plimsoll {

/// What a list scheduler answers with, and the makespan it expects without contention.
struct ListSchedule {
  Placement placement;
  Nanoseconds makespan = 0;
};
using ListOutcome = std::variant<ListSchedule, Infeasible>;

/// Topcuoglu's heterogeneous earliest finish time, with insertion.
ListOutcome heft_schedule(const OpDag&, const Machine&);
/// Topcuoglu's critical path on a processor.
ListOutcome cpop_schedule(const OpDag&, const Machine&);
/// Hwang's earliest task first.
ListOutcome etf_schedule(const OpDag&, const Machine&);

/// No processor has memory and runs all that must run together.
Infeasible nowhere_to_run();

PlacementOutcome without_makespan(ListOutcome);

/// What a list scheduler makes of them, for those who only place.
template <ListOutcome (*schedule)(const OpDag&, const Machine&)>
PlacementOutcome placed_from(const OpDag& dag, const Machine& machine) {
  return without_makespan(schedule(dag, machine));
}

}  // namespace plimsoll
