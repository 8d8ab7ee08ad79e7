#pragma once
// How much memory an allocator takes from each device to serve a schedule that ran as the timeline says.
//
// Allocations and frees are replayed in simulated date order: by date, then round, frees before allocations; ties by
// stream, then step. Resident buffers come first, in order. A step allocates its buffers in the order in which they are
// listed and then its workspace; when it finishes it frees the workspace and then its buffers. Empty buffers take no
// block. A buffer belongs to the pools of the stream whose step allocates it, or, if that stream is another device's
// (a received tensor) or the buffer is resident, to the device's first compute stream.
//
// On one stream that is PyTorch's order: its host allocates and frees in issue order, and reuses a freed block at once
// on the same stream. Across streams PyTorch frees a block once the events of all streams that used it have passed,
// which here is the finish of the step that frees it; but its host, running ahead, takes blocks earlier than at the
// date when their step starts, and that is not modelled.

#include <optional>
#include <vector>

#include "sim/core/platform.h"
#include "sim/core/schedule.h"
#include "sim/core/timeline.h"
#include "sim/memory/allocator_kind.h"

namespace plimsoll {

/// The first request that a memory could not serve.
struct OutOfMemory {
  std::optional<StepId> step;  ///< unset: a resident buffer
  Bytes requested;
  Bytes reserved, allocated;  ///< when it failed, after everything free had been given back

  friend bool operator==(const OutOfMemory&, const OutOfMemory&) = default;
};

/// The fullest moments of one memory.
struct ReservedPeak {
  Bytes reserved;   ///< most bytes taken from the device
  Bytes allocated;  ///< most bytes in blocks, rounding included
  Bytes live;       ///< most bytes of buffers and workspaces
  /// Reserved less allocated bytes at the fullest moment: when most is reserved and, of these moments, most allocated.
  Bytes fragmentation{};
  /// Set when the device's capacity, or the schedule's budget if that is less, did not suffice. The replay then goes on
  /// without a limit, so `reserved` exceeds the limit.
  std::optional<OutOfMemory> out_of_memory{};

  friend bool operator==(const ReservedPeak&, const ReservedPeak&) = default;
};

/// One per memory of the platform. Memories that are no device's, and all of them with AllocatorKind::exact, reserve
/// exactly their live bytes and never run out of memory here.
std::vector<ReservedPeak> peak_reserved(const Schedule&, const Timeline&, const Platform&, AllocatorKind);

}  // namespace plimsoll
