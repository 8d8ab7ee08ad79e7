#include "experiments/snapshot_replay.h"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>

#include "sim/memory/caching_allocator.h"

namespace plimsoll {
namespace {

/// A request, a free, or that free memory goes back, in terms of buffers.
struct SnapshotStep {
  enum class Kind : std::uint8_t { allocate, free, release } kind;
  std::size_t buffer = 0;
};

/// A device's history as steps on buffers, those that are older first.
class History {
 public:
  History(const MemorySnapshot& snapshot, std::uint32_t device) {
    if (device < snapshot.traces.size()) {
      for (const SnapshotEvent& event : snapshot.traces[device]) add(event);
    }
    for (const SnapshotSegment& segment : snapshot.segments) {
      if (segment.device != device) continue;
      for (const SnapshotBlock& block : segment.blocks) {
        if (block.state != BlockState::free && !live_.contains(block.address)) {
          older_.emplace_back(block.address, new_buffer(block.requested, segment.stream));
        }
      }
    }
    std::ranges::sort(older_);
  }

  std::size_t older() const { return older_.size(); }
  std::size_t streams() const { return streams_.size(); }

  SnapshotCandidate replay(const AllocatorChoice& choice) const {
    CachingAllocator allocator(choice.caching);
    std::vector<std::optional<BlockId>> blocks(buffers_.size());
    const auto take = [&](std::size_t b) { blocks[b] = allocator.allocate(buffers_[b].size, buffers_[b].stream); };
    for (const auto& [address, buffer] : older_) take(buffer);
    SnapshotCandidate found{choice.text, {}, allocator.reserved()};
    for (const SnapshotStep& step : steps_) {
      if (step.kind == SnapshotStep::Kind::allocate) take(step.buffer);
      if (step.kind == SnapshotStep::Kind::free) allocator.free(*blocks[step.buffer]);
      if (step.kind == SnapshotStep::Kind::release) allocator.release_cached();
      found.peak = std::max(found.peak, allocator.reserved());
    }
    found.reserved = allocator.reserved();
    return found;
  }

 private:
  struct Buffer {
    Bytes size;
    StreamId stream;
  };

  std::size_t new_buffer(Bytes size, std::int64_t stream) {
    const auto [known, is_new] = streams_.try_emplace(stream, id_at<StreamId>(streams_.size()));
    buffers_.push_back({std::max(size, Bytes{1}), known->second});
    return buffers_.size() - 1;
  }

  void add(const SnapshotEvent& event) {
    const bool releases =
        event.action == AllocatorAction::segment_free || event.action == AllocatorAction::segment_unmap;
    if (releases && !is_releasing_) steps_.push_back({SnapshotStep::Kind::release});
    is_releasing_ = releases;
    if (event.action == AllocatorAction::alloc) {
      if (const auto lost = live_.find(event.address); lost != live_.end()) {  // its free is not in the history
        steps_.push_back({SnapshotStep::Kind::free, lost->second});
      }
      live_[event.address] = new_buffer(event.size, event.stream);
      steps_.push_back({SnapshotStep::Kind::allocate, live_[event.address]});
    }
    if (event.action != AllocatorAction::free_completed) return;
    if (!live_.contains(event.address)) {
      live_[event.address] = new_buffer(event.size, event.stream);
      older_.emplace_back(event.address, live_[event.address]);
    }
    steps_.push_back({SnapshotStep::Kind::free, live_[event.address]});
    live_.erase(event.address);
  }

  std::vector<Buffer> buffers_;
  std::vector<SnapshotStep> steps_;
  std::vector<std::pair<std::int64_t, std::size_t>> older_;  ///< address and buffer
  std::unordered_map<std::int64_t, std::size_t> live_;       ///< by address
  std::map<std::int64_t, StreamId> streams_;
  bool is_releasing_ = false;
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
  const History history(snapshot, device);
  findings.older = history.older();
  findings.streams = history.streams();
  for (const AllocatorChoice& choice : choices) findings.candidates.push_back(history.replay(choice));
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
