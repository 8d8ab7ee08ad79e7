#include "experiments/export/snapshot_replay.h"

#include <algorithm>
#include <optional>

#include "experiments/export/snapshot_history.h"
#include "sim/memory/caching_allocator.h"

namespace plimsoll {
namespace {

/// Whether the allocator's segments are of the kind that the snapshot has.
bool has_segments_of(const SnapshotHistory& history, const AllocatorChoice& choice) {
  return (choice.caching.segments == Segments::expandable) == history.is_expandable;
}

/// One allocator that is asked for what the history asked for.
class Replay {
 public:
  Replay(const SnapshotHistory& history, const AllocatorChoice& choice)
      : history_(history), allocator_(choice.caching), blocks_(history.buffers.size()) {
    starts_as_recorded_ = history.at_start && has_segments_of(history, choice);
    if (starts_as_recorded_) {
      for (const HistorySegment& segment : *history.at_start) adopt(segment);
      for (const NewSegment& segment : history.made) {
        allocator_.expect_segment(segment.stream, segment.small, segment.size, segment.address);
      }
    } else {
      for (const std::size_t buffer : history.older) allocate(buffer);
    }
  }

  SnapshotCandidate run(const AllocatorChoice& choice) {
    SnapshotCandidate found{choice.text, {}, allocator_.reserved()};
    bool is_releasing = false;
    for (const HistoryStep& step : history_.steps) {
      const bool releases = step.kind == HistoryStep::Kind::release;
      if (step.kind == HistoryStep::Kind::allocate) allocate(step.buffer);
      if (step.kind == HistoryStep::Kind::free) allocator_.free(*blocks_[step.buffer]);
      if (releases) release(step.address, choice, is_releasing);
      is_releasing = releases;
      found.peak = std::max(found.peak, allocator_.reserved());
    }
    found.reserved = allocator_.reserved();
    return found;
  }

 private:
  void adopt(const HistorySegment& segment) {
    const std::vector<BlockId> pieces = allocator_.adopt(segment.layout);
    auto buffer = segment.buffers.begin();
    for (std::size_t p = 0; p < pieces.size(); ++p) {
      if (segment.layout.pieces[p].state == BlockState::allocated) blocks_[*buffer++] = pieces[p];
    }
  }

  void allocate(std::size_t buffer) {
    blocks_[buffer] = allocator_.allocate(history_.buffers[buffer].size, history_.buffers[buffer].stream);
  }

  /// A native segment that lies where it lay goes back alone; else all that is free does, once for what goes together.
  void release(std::int64_t address, const AllocatorChoice& choice, bool is_releasing) {
    if (starts_as_recorded_ && choice.caching.segments != Segments::expandable) {
      allocator_.release_segment_at(address);
    } else if (!is_releasing) {
      allocator_.release_cached();
    }
  }

  const SnapshotHistory& history_;
  CachingAllocator allocator_;
  std::vector<std::optional<BlockId>> blocks_;
  bool starts_as_recorded_ = false;
};

/// What segment events add to the reserved bytes.
Bytes added_by(const SnapshotEvent& event) {
  switch (event.action) {
    case AllocatorAction::segment_alloc:
    case AllocatorAction::segment_map:
      return event.size;
    case AllocatorAction::segment_free:
    case AllocatorAction::segment_unmap:
      return Bytes{} - event.size;
    default:
      return {};
  }
}

void add_segment(SnapshotFindings& findings, const SnapshotSegment& segment) {
  findings.in_segments += segment.total;
  Bytes sum;
  for (const SnapshotBlock& block : segment.blocks) {
    sum += block.size;
    if (block.state == BlockState::allocated) findings.allocated += block.size;
    if (block.state == BlockState::free) continue;
    findings.active += block.size;
    findings.requested += block.requested;
  }
  findings.torn_segments += sum == segment.total ? 0 : 1;
}

SnapshotFindings findings_of(const MemorySnapshot& snapshot, std::uint32_t device,
                             std::span<const AllocatorChoice> choices) {
  SnapshotFindings findings{.device = device};
  for (const SnapshotSegment& segment : snapshot.segments) {
    if (segment.device == device) add_segment(findings, segment);
  }
  Bytes sum, most;
  if (device < snapshot.traces.size()) {
    findings.events = snapshot.traces[device].size();
    for (const SnapshotEvent& event : snapshot.traces[device]) {
      sum += added_by(event);
      most = std::max(most, sum);
    }
  }
  findings.at_start = findings.in_segments - sum;
  findings.peak = findings.at_start + most;
  const SnapshotHistory history = history_of(snapshot, device);
  findings.older = history.older.size();
  findings.streams = history.streams;
  findings.peak_allocated = history.peak_allocated;
  for (const AllocatorChoice& choice : choices) findings.candidates.push_back(Replay(history, choice).run(choice));
  return findings;
}

}  // namespace

std::vector<SnapshotFindings> replay_snapshot(const MemorySnapshot& snapshot,
                                              std::span<const AllocatorChoice> choices) {
  std::vector<bool> is_there(snapshot.traces.size());
  for (std::size_t d = 0; d < snapshot.traces.size(); ++d) is_there[d] = !snapshot.traces[d].empty();
  for (const SnapshotSegment& segment : snapshot.segments) {
    if (segment.device >= is_there.size()) is_there.resize(segment.device + 1);
    is_there[segment.device] = true;
  }
  std::vector<SnapshotFindings> all;
  for (std::uint32_t d = 0; d < is_there.size(); ++d) {
    if (is_there[d]) all.push_back(findings_of(snapshot, d, choices));
  }
  return all;
}

}  // namespace plimsoll
