#pragma once
// The shortest plan, by halving: for planners that find a plan within a time, or that there is none.

#include <optional>
#include <utility>

#include "sim/core/tolerance.h"

namespace plimsoll {

/// From a plan, and a time that no plan is below. `within`: a plan within the time, or none.
template <class Plan, class Within>
Plan shortest_plan(Plan best, double below, const Within& within) {
  while (best.seconds - below > sum_tolerance * best.seconds) {
    const double middle = (below + best.seconds) / 2;
    std::optional<Plan> shorter = within(middle);
    if (shorter && shorter->seconds < best.seconds) {
      best = *std::move(shorter);
    } else {
      below = middle;
    }
  }
  return best;
}

}  // namespace plimsoll
