#pragma once
// A timeline for people to look at: Chrome trace JSON, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

#include <string>
#include <string_view>

#include "sim/core/schedule.h"
#include "sim/core/timeline.h"
#include "sim/model/problem.h"

namespace plimsoll {

/// One process a device with one thread a stream, one slice a step, one stacked counter a memory (live bytes by kind of
/// tensor), arrows from the maker of what is copied to the copy and on to its readers. Dates are whole nanoseconds,
/// written in microseconds.
std::string perfetto_timeline(const Problem&, const Schedule&, const Timeline&, std::string_view made_by = "");

}  // namespace plimsoll
