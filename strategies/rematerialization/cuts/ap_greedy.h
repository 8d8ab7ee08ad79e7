#pragma once
// The strategy `ap_greedy`: Chen's greedy segments on a graph (ap_points.h).

#include "strategies/api/strategy.h"
#include "strategies/rematerialization/cuts/ap_points.h"

namespace plimsoll {

/// Adds the plans of all segment sizes that are tried.
void add_greedy_segments(PlanPool&, const OpModel&, Points);

}  // namespace plimsoll
