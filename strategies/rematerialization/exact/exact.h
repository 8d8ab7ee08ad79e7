#pragma once
// The strategy `exact`: the fastest of all schedules within the budget (exact_search.h).

#include "strategies/api/strategy.h"
#include "strategies/models/op_sequence.h"
#include "strategies/rematerialization/exact/exact_search.h"

namespace plimsoll {

/// The schedule of least peak, by halving: whether a budget is enough is a search that needs no times. Not below what
/// `known` reaches where the search cannot hold the part or a limit stops it, and then it is not proven. The limits'
/// seconds are those of all halvings together.
struct SmallestSchedule {
  PlannedTape plan;
  Bytes below;            ///< nothing is possible with less
  SearchResult::End end;  ///< which limit stopped a search, if one did

  bool proven() const { return end == SearchResult::End::solved; }
};
SmallestSchedule smallest_schedule(const PartTask&, const OpModel&, const PlanPool& known, const SearchLimits&);

}  // namespace plimsoll
