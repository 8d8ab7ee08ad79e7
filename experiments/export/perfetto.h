#pragma once
// A timeline for people to look at: Chrome trace JSON, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

#include <string>
#include <string_view>

#include "sim/core/schedule.h"
#include "sim/core/timeline.h"
#include "sim/model/problem.h"

namespace plimsoll {

/// One process a device with one thread a stream, and one more for the collectives of a stream that does other things;
/// one slice a step, one stacked counter a memory (live bytes by kind of tensor), arrows from the maker of what is
/// copied or exchanged to the copy or collective and on to its readers. Dates are whole nanoseconds, written in
/// microseconds.
std::string perfetto_timeline(const Problem&, const Schedule&, const Timeline&, std::string_view made_by = "");

}  // namespace plimsoll
