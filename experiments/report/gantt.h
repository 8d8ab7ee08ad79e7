#pragma once
// A timeline of several devices as a Gantt chart: SVG for a file or for the page of a report.

#include <string>

#include "sim/io/json/json.h"

namespace plimsoll {

/// Of what `gantt_record` holds, with `makespan_s` and `peak_bytes` beside it: a row a device, blocks by colour with
/// the numbers of their micro-batches from 1, below it what it sends and how full its memory is. A block of the
/// device's second part has a line at its foot, of the third two. With a title it is a file of its own on a white
/// ground; without, its text has the colour of what surrounds it.
std::string gantt_svg(const Json& timeline, const std::string& title);

/// Of the devices' time until the last of them ends, how much none of their ops runs.
double idle_share(const Json& timeline);

}  // namespace plimsoll
