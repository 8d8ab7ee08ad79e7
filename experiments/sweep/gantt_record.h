#pragma once
// A timeline of several devices as a sweep keeps it for a Gantt chart: what every device did when, of which
// micro-batch, and how full its memory was.

#include "sim/core/schedule.h"
#include "sim/core/timeline.h"
#include "sim/io/json/json.h"
#include "sim/model/problem.h"

namespace plimsoll {

bool several_devices_compute(const Schedule&);

/// `devices`, of each `name`, `lanes` and `memory` (rows of a date and the bytes from then on). A lane has a name and
/// `spans` of [start, finish, what, micro-batch, part], in seconds: what follows without a gap and is the same is one
/// span. A device's parts are counted from 0: stages that follow each other and are run for the same micro-batches are
/// one.
Json gantt_record(const Problem&, const Schedule&, const Timeline&);

}  // namespace plimsoll
