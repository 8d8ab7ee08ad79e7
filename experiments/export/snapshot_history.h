#pragma once
// The history of a memory snapshot as requests and frees of buffers, and what lay in its segments when it began.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "experiments/export/memory_snapshot.h"

namespace plimsoll {

/// A request, a free, or that memory goes back to the device.
struct HistoryStep {
  enum class Kind : std::uint8_t { allocate, free, release } kind;
  std::size_t buffer = 0;
  std::int64_t address = 0;  ///< of what goes back
};

struct HistoryBuffer {
  Bytes size;       ///< as asked for
  StreamId stream;  ///< a number for each stream and pool
  std::int64_t address = 0;
};

/// What lay in a segment, and which buffers its allocated pieces are.
struct HistorySegment {
  SegmentLayout layout;
  std::vector<std::size_t> buffers;
};

/// A segment that the history takes.
struct NewSegment {
  StreamId stream;
  bool small = false;
  Bytes size;
  std::int64_t address = 0;
};

struct SnapshotHistory {
  std::vector<HistoryBuffer> buffers;
  std::vector<HistoryStep> steps;
  std::vector<std::size_t> older;  ///< buffers that were there before the history begins, by address
  std::size_t streams = 0;
  Bytes peak_allocated;        ///< most bytes in blocks that were handed out, from the addresses in the history
  bool is_expandable = false;  ///< the segments
  /// Unset where segments and history are not of one run, or where there are segments of both kinds.
  std::optional<std::vector<HistorySegment>> at_start{};
  std::vector<NewSegment> made;  ///< in order
};

SnapshotHistory history_of(const MemorySnapshot&, std::uint32_t device);

}  // namespace plimsoll
