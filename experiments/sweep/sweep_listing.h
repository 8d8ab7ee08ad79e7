#pragma once
// plimsoll sweep --dry-run: the points of an experiment, without any of them being planned.

#include <iosfwd>

#include "experiments/sweep/experiment_file.h"
#include "experiments/sweep/sweep_points.h"

namespace plimsoll {

/// A line a group with the numbers of its points and their budgets as the experiment states them, then how many there
/// are.
void list_points(const Experiment&, Shard, std::ostream&);

}  // namespace plimsoll
