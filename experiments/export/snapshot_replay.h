#pragma once
// A memory snapshot of PyTorch's replayed: which settings of the allocator reserve what its segments hold.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "experiments/export/memory_snapshot.h"
#include "sim/memory/allocator_settings.h"

namespace plimsoll {

/// What an allocator reserves where it is asked for the same.
struct SnapshotCandidate {
  std::string allocator;
  Bytes reserved;  ///< at the end
  Bytes peak;
};

/// One device of a snapshot.
struct SnapshotFindings {
  std::uint32_t device = 0;
  std::size_t events = 0, streams = 0;
  std::size_t older = 0;  ///< buffers that were there before the history begins
  Bytes in_segments;      ///< total_size of all segments: what is reserved at the end
  Bytes at_start;         ///< what was reserved before: that less what the history's segment events add up to
  Bytes peak;             ///< most that was reserved in between
  Bytes allocated, active, requested;  ///< at the end
  Bytes peak_allocated;                ///< most in blocks that were handed out in between
  std::size_t torn_segments = 0;       ///< whose blocks do not fill them
  std::vector<SnapshotCandidate> candidates;
};

/// For every device that has segments or a history. An allocator whose segments are of the snapshot's kind begins with
/// those that were there before the history, free room included; new ones lie where the history has them. Others are
/// asked for the older buffers first, by address, and give back all that is free where the history gives anything back.
/// An allocator's capacity is unlimited.
std::vector<SnapshotFindings> replay_snapshot(const MemorySnapshot&, std::span<const AllocatorChoice>);

}  // namespace plimsoll
