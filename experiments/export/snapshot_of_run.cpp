#include "experiments/export/snapshot_of_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "sim/core/names.h"
#include "sim/io/input_error.h"
#include "sim/memory/replay.h"
#include "sim/memory/round.h"

namespace plimsoll {
namespace {

using SegmentKey = std::tuple<StreamId, bool, std::uint32_t>;

/// One device's run.
class RunSnapshot {
 public:
  RunSnapshot(const Problem& problem, const Schedule& schedule, std::uint32_t device, const AllocatorRun& run,
              const AllocatorChoice& choice, MemorySnapshot& snapshot)
      : problem_(problem), schedule_(schedule), device_(device), run_(run), choice_(choice), snapshot_(snapshot) {}

  void write() {
    place_segments();
    std::vector<SnapshotEvent>& trace = snapshot_.traces[device_];
    std::map<std::int64_t, std::optional<std::uint32_t>> frames;  // of what is live, by address
    for (const DatedEvent& dated : run_.events) {
      const AllocatorEvent& event = dated.event;
      const bool has_place = event.action != AllocatorAction::oom;
      SnapshotEvent& made = trace.emplace_back();
      made.action = event.action;
      made.address = has_place ? addresses_.at(key(event)) + event.offset.count : 0;
      made.size = event.size;
      made.stream = event.stream.index;
      made.time_us = std::llround(1e6 * dated.date.value);
      made.frame = frame_of(dated.step);
      if (event.action == AllocatorAction::alloc) frames[made.address] = made.frame;
    }
    write_segments(frames);
  }

 private:
  template <class Placed>
  static SegmentKey key(const Placed& placed) {
    return {placed.stream, placed.small, placed.segment};
  }

  /// In the order in which they were first used, each as long as it ever was.
  void place_segments() {
    constexpr std::int64_t first = std::int64_t{0x7f} << 40U, unit = std::int64_t{2} << 20U;
    std::map<SegmentKey, Bytes> extents;
    std::vector<SegmentKey> order;
    for (const DatedEvent& dated : run_.events) {
      if (dated.event.action == AllocatorAction::oom) continue;
      const auto [extent, is_new] = extents.try_emplace(key(dated.event));
      if (is_new) order.push_back(extent->first);
      extent->second = std::max(extent->second, dated.event.offset + dated.event.size);
    }
    std::int64_t next = first;
    for (const SegmentKey& each : order) {
      addresses_[each] = next;
      next += round_up(extents[each], {unit}).count + unit;
    }
  }

  /// Each step once.
  std::optional<std::uint32_t> frame_of(std::optional<StepId> step) {
    const auto [known, is_new] = frames_.try_emplace(step, static_cast<std::uint32_t>(snapshot_.frames.size()));
    if (is_new) {
      SnapshotFrame& frame = snapshot_.frames.emplace_back();
      frame.file = problem_.graph.name;
      frame.name = "before the first step";
      if (step) {
        const Step& of = schedule_[*step];
        frame.name = of.op == no_op ? std::string(written(of.kind)) : problem_.graph[of.op].name;
        frame.line = step->index;
      }
    }
    return known->second;
  }

  /// An expandable segment is one for each of its mapped ranges.
  void write_segments(const std::map<std::int64_t, std::optional<std::uint32_t>>& frames) {
    std::optional<SegmentKey> open;
    for (const BlockView& block : run_.blocks) {
      if (block.state == BlockState::unmapped) {
        open.reset();
        continue;
      }
      const std::int64_t address = addresses_.at(key(block)) + block.offset.count;
      if (open != key(block)) {
        SnapshotSegment& segment = snapshot_.segments.emplace_back();
        segment.device = device_;
        segment.address = address;
        segment.stream = block.stream.index;
        segment.small = block.small;
        segment.expandable = choice_.caching.segments == Segments::expandable;
        open = key(block);
      }
      SnapshotSegment& segment = snapshot_.segments.back();
      segment.total += block.size;
      const bool is_active = block.state != BlockState::free;
      segment.blocks.push_back({.address = address,
                                .size = block.size,
                                .requested = is_active ? block.requested : Bytes{},
                                .state = block.state,
                                .frame = is_active ? frames.at(address) : std::nullopt});
    }
  }

  const Problem& problem_;
  const Schedule& schedule_;
  std::uint32_t device_;
  const AllocatorRun& run_;
  const AllocatorChoice& choice_;
  MemorySnapshot& snapshot_;
  std::map<SegmentKey, std::int64_t> addresses_;
  std::map<std::optional<StepId>, std::uint32_t> frames_;
};

}  // namespace

MemorySnapshot snapshot_of(const Problem& problem, const Schedule& schedule, const Timeline& timeline,
                           const AllocatorChoice& choice) {
  if (choice.kind != AllocatorKind::cuda && choice.kind != AllocatorKind::cuda_expandable) {
    throw InputError(
        fmt::format("export: a memory snapshot is of the allocator cuda or cuda-expandable, found '{}'", choice.text));
  }
  MemorySnapshot snapshot;
  snapshot.settings = choice.caching;
  const Platform& platform = problem.platform;
  const std::vector<AllocatorRun> runs =
      allocator_runs(schedule, timeline, platform, choice, step_orders(problem, schedule));
  snapshot.traces.resize(platform.devices.size());
  for (std::uint32_t d = 0; d < platform.devices.size(); ++d) {
    RunSnapshot(problem, schedule, d, runs[platform.devices[d].memory.index], choice, snapshot).write();
  }
  return snapshot;
}

}  // namespace plimsoll
