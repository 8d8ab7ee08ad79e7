#pragma once
// A schedule's run of the allocator as a snapshot that PyTorch's viewer shows.

#include "experiments/export/memory_snapshot.h"
#include "sim/core/schedule.h"
#include "sim/core/timeline.h"
#include "sim/model/problem.h"

namespace plimsoll {

/// Of every device: the history of its allocator, with the op and step behind each event as its frame, and the segments
/// at the end. Addresses are made up: segments lie behind each other with a gap. Throws InputError for allocators
/// without segments of their own (exact, static), and for stitched ones, whose blocks have no one place.
MemorySnapshot snapshot_of(const Problem&, const Schedule&, const Timeline&, const AllocatorChoice&);

}  // namespace plimsoll
