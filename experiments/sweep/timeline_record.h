#pragma once
// A timeline as a sweep keeps it for the pictures of its report: what streams did when, and how full memories were.

#include "sim/core/schedule.h"
#include "sim/core/timeline.h"
#include "sim/io/json/json.h"
#include "sim/model/problem.h"

namespace plimsoll {

/// Of a device that computes alone `lanes`: each a name (of a kind of stream) and `spans` of [start, finish, what], in
/// seconds; what a compute lane does is the kind of step, what a copy moves the kind of tensor. `memory_kinds`, and
/// `memory`: rows of a date and the bytes of each kind from then on. Where several devices compute: `devices`, as
/// gantt_record() in timeline_record.cpp says.
Json timeline_record(const Problem&, const Schedule&, const Timeline&);

}  // namespace plimsoll
