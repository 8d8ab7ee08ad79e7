#pragma once
// What a search over splits is judged by in tests: its plan, simulated.

#include <string_view>

#include "sim/core/units.h"
#include "sim/model/problem.h"

namespace plimsoll {

/// The time of one iteration by the strategies of `spec`, simulated by the event engine. What check() finds fails the
/// test.
Seconds judged_time(const Problem& problem, std::string_view spec);

}  // namespace plimsoll
