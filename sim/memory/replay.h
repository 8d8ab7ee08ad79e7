#pragma once
// How much memory an allocator takes from each device to serve a schedule that ran as the timeline says.
//
// Allocations and frees are replayed in simulated date order: by date, then round, frees before allocations; ties by
// stream, then step. Resident buffers come first, in order. A step allocates its buffers in the order in which they are
// listed, then at the first compute step of a stream what cuBLAS keeps there, if that is asked for, and then its
// workspace; when it finishes it frees the workspace and then its buffers. Empty buffers take no block. A buffer
// belongs to the pools of the stream whose step allocates it, or, if that stream is another device's (a received
// tensor) or the buffer is resident, to the device's first compute stream.
//
// A step whose requests are known one by one (sim/memory/step_orders.h) makes those instead, all of them when it
// starts: a host issues a step in one go. Then two iterations are replayed: an optimizer makes its states at the end of
// the first, in what that has left, and what the second finds free decides what is reserved. An evaluation stands
// between the two.
//
// On one stream that is PyTorch's order: its host allocates and frees in issue order, and reuses a freed block at once
// on the same stream. A buffer that a step of another stream frees is recorded on that stream, as record_stream does:
// it counts as freed from the start of that step, but stays active until the step is over. PyTorch's host, running
// ahead, takes blocks earlier than at the date when their step starts, and that is not modelled.

#include <optional>
#include <vector>

#include "sim/core/platform.h"
#include "sim/core/schedule.h"
#include "sim/core/timeline.h"
#include "sim/memory/allocator_settings.h"
#include "sim/memory/caching_allocator.h"
#include "sim/memory/step_orders.h"

namespace plimsoll {

/// The first request that a memory could not serve.
struct OutOfMemory {
  std::optional<StepId> step;  ///< unset: a resident buffer, or a plan that is larger than the memory
  Bytes requested;
  Bytes reserved, allocated;  ///< when it failed, after everything free had been given back
  Bytes active{};             ///< those allocated, and what other streams still use
  Bytes largest_free{};       ///< of all free blocks that are left
  Bytes limit{};

  /// Whether there are enough bytes, but not in one piece.
  bool is_fragmentation() const { return requested <= limit - active; }

  friend bool operator==(const OutOfMemory&, const OutOfMemory&) = default;
};

/// The fullest moments of one memory.
struct ReservedPeak {
  Bytes reserved;     ///< most bytes taken from the device
  Bytes allocated;    ///< most bytes in blocks, rounding included
  Bytes live;         ///< most bytes of buffers and workspaces
  Bytes active{};     ///< most bytes in blocks with those that other streams still use
  Bytes requested{};  ///< most bytes asked for, of active blocks
  /// When most is reserved and, of these moments, most allocated.
  AllocatorBytes fullest{};
  std::uint32_t retries = 0;  ///< requests for which all free memory was given back first
  /// Set when the device's capacity did not suffice. The replay then goes on without a limit, so `reserved` exceeds it.
  /// The schedule's budget is of live bytes and limits nothing here.
  std::optional<OutOfMemory> out_of_memory{};

  /// Of what is reserved at most, the share that is never allocated.
  double fragmentation() const {
    if (reserved == Bytes{0}) return 0;
    return 1 - static_cast<double>(allocated.count) / static_cast<double>(reserved.count);
  }

  friend bool operator==(const ReservedPeak&, const ReservedPeak&) = default;
};

/// What an allocator did, when, and for which step (unset: before the first).
struct DatedEvent {
  AllocatorEvent event;
  Seconds date;
  std::optional<StepId> step;
};

/// One memory's allocator from the first to the last step.
struct AllocatorRun {
  ReservedPeak peak;
  std::vector<DatedEvent> events;  ///< in order; none of memories that have no caching allocator
  std::vector<BlockView> blocks;   ///< at the end
};

/// One per memory of the platform. Memories that are no device's, and all of them with AllocatorKind::exact, reserve
/// exactly their live bytes and never run out of memory here.
std::vector<ReservedPeak> peak_reserved(const Schedule&, const Timeline&, const Platform&, const AllocatorChoice&,
                                        const StepOrders& = {});

/// The same with all that the allocators did.
std::vector<AllocatorRun> allocator_runs(const Schedule&, const Timeline&, const Platform&, const AllocatorChoice&,
                                         const StepOrders& = {});

}  // namespace plimsoll
