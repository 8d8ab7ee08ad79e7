#pragma once
// Why an iteration does not end sooner: a chain of steps, each of which begins when the one before it ends.

#include <vector>

#include "sim/core/schedule.h"
#include "sim/core/timeline.h"

namespace plimsoll {

/// From a step that begins with the iteration to one that ends with it, in which each step follows the one before on
/// its stream or waits for it, and begins as it ends: so their times sum to the makespan. Of several such chains the
/// one that stays on its streams. The timeline is an engine's, whose steps begin as soon as they may.
std::vector<StepId> critical_path(const Schedule&, const Timeline&);

}  // namespace plimsoll
