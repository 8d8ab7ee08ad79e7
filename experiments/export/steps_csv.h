#pragma once
// A simulated schedule as a table, a row a step.

#include <string>
#include <string_view>

#include "sim/core/schedule.h"
#include "sim/core/timeline.h"
#include "sim/model/problem.h"

namespace plimsoll {

/// A comment line with `made_by`, the names of the columns, then the steps in issue order. Seconds have all their
/// digits; `waits` are steps, with blanks between.
std::string steps_csv(const Problem&, const Schedule&, const Timeline&, std::string_view made_by);

}  // namespace plimsoll
