#include "experiments/export/snapshot_replay.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <vector>

#include "experiments/export/memory_snapshot.h"
#include "sim/memory/caching_allocator.h"

namespace plimsoll {
namespace {

// The history of a memory snapshot as requests and frees of buffers, and what lay in its segments when it began.
// The start is found from the segments at the end, back through what the history takes and gives back. The size of a
// block that is still there at the end is known. One that was freed takes what its request is rounded up to, and with
// it what is free behind it, if that is too little to be split off: so small a block is never free by itself, since
// what is split off is larger, and so is whatever else was requested there.

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

// Which memory an allocator holds while a snapshot's history goes on, forward or back.

/// Memory taken from the device: a segment, or a mapped range of an expandable one.
struct HeldRange {
  std::int64_t begin = 0, end = 0;  ///< addresses
  std::int64_t stream = 0;          ///< PyTorch's handle
  SnapshotPool pool{};
  bool small = false, expandable = false;

  Bytes size() const { return {end - begin}; }
  /// Whether both are of the same expandable segment.
  bool is_of_one_segment_with(const HeldRange&) const;
};

/// All that is held. Mapped ranges of one expandable segment that touch are one.
class HeldMemory {
 public:
  /// Whether nothing of it was held.
  bool add(HeldRange);

  /// Takes a range out of what is held, whole segments only or any part of an expandable one. Whether it was there.
  bool take(std::int64_t address, Bytes size);

  /// The range that holds this address.
  std::optional<HeldRange> around(std::int64_t address) const;

  /// A range that was mapped once: as what lies nearest to it on its stream, since segments lie far apart.
  HeldRange like_its_neighbour(std::int64_t address, Bytes size, std::int64_t stream) const;

  const std::map<std::int64_t, HeldRange>& ranges() const { return ranges_; }

 private:
  std::map<std::int64_t, HeldRange> ranges_;  ///< by address
};

bool HeldRange::is_of_one_segment_with(const HeldRange& other) const {
  return expandable && other.expandable && stream == other.stream && pool == other.pool && small == other.small;
}

bool HeldMemory::add(HeldRange range) {
  const auto after = ranges_.lower_bound(range.begin);
  const bool is_new = !around(range.begin) && (after == ranges_.end() || after->first >= range.end);
  if (const auto next = ranges_.find(range.end); next != ranges_.end() && next->second.is_of_one_segment_with(range)) {
    range.end = next->second.end;
    ranges_.erase(next);
  }
  if (const auto before = around(range.begin - 1); before && before->is_of_one_segment_with(range)) {
    range.begin = before->begin;
  }
  ranges_[range.begin] = range;
  return is_new;
}

bool HeldMemory::take(std::int64_t address, Bytes size) {
  const std::optional<HeldRange> held = around(address);
  const std::int64_t end = address + size.count;
  if (!held || end > held->end || (!held->expandable && held->size() != size)) return false;
  ranges_.erase(held->begin);
  const auto keep = [&](std::int64_t from, std::int64_t to) {
    if (from >= to) return;
    HeldRange& kept = ranges_[from] = *held;
    kept.begin = from;
    kept.end = to;
  };
  keep(held->begin, address);
  keep(end, held->end);
  return true;
}

std::optional<HeldRange> HeldMemory::around(std::int64_t address) const {
  const auto after = ranges_.upper_bound(address);
  if (after == ranges_.begin()) return std::nullopt;
  const HeldRange& before = std::prev(after)->second;
  return address < before.end ? std::optional(before) : std::nullopt;
}

HeldRange HeldMemory::like_its_neighbour(std::int64_t address, Bytes size, std::int64_t stream) const {
  HeldRange made{
      .stream = stream, .small = size.count % CachingAllocator::large_segment.count != 0, .expandable = true};
  std::int64_t nearest = std::numeric_limits<std::int64_t>::max();
  for (const auto& [begin, held] : ranges_) {
    const std::int64_t away = begin > address ? begin - address : address - begin;
    if (!held.expandable || held.stream != stream || away >= nearest) continue;
    nearest = away;
    made = held;
  }
  made.begin = address;
  made.end = address + size.count;
  return made;
}

bool takes_memory(const SnapshotEvent& event) {
  return event.action == AllocatorAction::segment_alloc || event.action == AllocatorAction::segment_map;
}

bool gives_back(const SnapshotEvent& event) {
  return event.action == AllocatorAction::segment_free || event.action == AllocatorAction::segment_unmap;
}

class HistoryReader {
 public:
  HistoryReader(const MemorySnapshot& snapshot, std::uint32_t device) : rules_(CachingSettings{}) {
    if (device < snapshot.traces.size()) events_ = snapshot.traces[device];
    tells_requests_ = std::ranges::any_of(
        events_, [](const SnapshotEvent& e) { return e.action == AllocatorAction::free_requested; });
    for (const SnapshotSegment& segment : snapshot.segments) {
      if (segment.device == device) add(segment);
    }
    go_back();
    CachingSettings settings{.segments = made_.is_expandable ? Segments::expandable : Segments::native};
    if (snapshot.settings && trouble_with(*snapshot.settings).empty()) settings = *snapshot.settings;
    rules_ = CachingAllocator(settings);
  }

  SnapshotHistory read() {
    go_forth();
    place_older();
    if (is_known_) {
      lay_out();
    }
    follow_blocks();
    made_.streams = handles_.size();
    return std::move(made_);
  }

 private:
  /// A block that is not free at the end.
  struct LastBlock {
    Bytes size, requested;
    std::int64_t stream;
  };
  /// A buffer that was there at the start.
  struct Older {
    std::size_t buffer = 0;
    std::int64_t address = 0;
    std::optional<Bytes> known{};  ///< its block's size, where it is still there at the end
    bool is_given = false;         ///< by the program, before the history begins: other streams still use it
    Bytes size{};                  ///< of the block

    std::int64_t end() const { return address + size.count; }
  };

  void add(const SnapshotSegment& segment) {
    const std::int64_t end = segment.address + segment.total.count;
    hold({segment.address, end, segment.stream, segment.pool, segment.small, segment.expandable});
    (segment.expandable ? made_.is_expandable : is_native_) = true;
    for (const SnapshotBlock& block : segment.blocks) {
      if (block.state != BlockState::free) last_[block.address] = {block.size, block.requested, segment.stream};
    }
  }

  void hold(const HeldRange& range) { is_known_ = held_.add(range) && is_known_; }

  /// From what is held at the end to what is at the start; and of which pool each range is that the history takes.
  void go_back() {
    taken_.resize(events_.size());
    for (std::size_t e = events_.size(); e-- > 0;) {
      const SnapshotEvent& event = events_[e];
      const std::int64_t end = event.address + event.size.count;
      if (takes_memory(event)) {
        taken_[e] = held_.around(event.address).value_or(HeldRange{.stream = event.stream});
        taken_[e].begin = event.address;
        taken_[e].end = end;
        is_known_ = held_.take(event.address, event.size) && is_known_;
      }
      if (event.action == AllocatorAction::segment_unmap) {
        hold(held_.like_its_neighbour(event.address, event.size, event.stream));
        made_.is_expandable = true;
      }
      if (event.action == AllocatorAction::segment_free) {
        hold({event.address, end, event.stream, {}, event.size == CachingAllocator::small_segment, false});
        is_native_ = true;
      }
    }
    is_known_ = is_known_ && !(is_native_ && made_.is_expandable);
  }

  void go_forth() {
    const HeldMemory at_start = held_;
    for (std::size_t e = 0; e < events_.size(); ++e) {
      const SnapshotEvent& event = events_[e];
      if (takes_memory(event)) {
        const HeldRange& range = taken_[e];
        held_.add(range);
        made_.made.push_back({number_of(range.stream, range.pool), range.small, event.size, event.address});
      }
      if (gives_back(event)) {
        held_.take(event.address, event.size);
        made_.steps.push_back({HistoryStep::Kind::release, 0, event.address});
      }
      if (event.action == AllocatorAction::alloc) allocate(event);
      if (event.action == AllocatorAction::free_requested) requested_.insert(event.address);
      if (event.action == AllocatorAction::free_completed) free(event);
    }
    for (const auto& [address, block] : last_) {
      if (live_.contains(address)) continue;
      older_.push_back({new_buffer(address, block.requested, block.stream), address, block.size});
    }
    held_ = at_start;
  }

  void allocate(const SnapshotEvent& event) {
    if (const auto lost = live_.find(event.address); lost != live_.end()) {  // its free is not in the history
      made_.steps.push_back({HistoryStep::Kind::free, lost->second});
    }
    live_[event.address] = new_buffer(event.address, event.size, event.stream);
    made_.steps.push_back({HistoryStep::Kind::allocate, live_[event.address]});
  }

  void free(const SnapshotEvent& event) {
    auto live = live_.find(event.address);
    const bool was_requested = requested_.erase(event.address) > 0;
    if (live == live_.end()) {
      live = live_.emplace(event.address, new_buffer(event.address, event.size, event.stream)).first;
      older_.push_back({live->second, event.address, {}, !was_requested && tells_requests_});
    }
    made_.steps.push_back({HistoryStep::Kind::free, live->second});
    live_.erase(live);
  }

  std::size_t new_buffer(std::int64_t address, Bytes size, std::int64_t stream) {
    const std::optional<HeldRange> range = held_.around(address);
    made_.buffers.push_back(
        {std::max(size, Bytes{1}), number_of(stream, range ? range->pool : SnapshotPool{}), address});
    return made_.buffers.size() - 1;
  }

  StreamId number_of(std::int64_t stream, const SnapshotPool& pool) {
    handles_.insert(stream);
    return numbers_.try_emplace({stream, pool}, id_at<StreamId>(numbers_.size())).first->second;
  }

  void place_older() {
    std::ranges::sort(older_, {}, &Older::address);
    for (const Older& each : older_) made_.older.push_back(each.buffer);
    for (std::size_t i = 0; i < older_.size(); ++i) {
      Older& each = older_[i];
      each.size = each.known.value_or(rules_.rounded(made_.buffers[each.buffer].size));
      const std::optional<HeldRange> range = held_.around(each.address);
      is_known_ = is_known_ && range;
      if (!is_known_) continue;
      std::int64_t limit = range->end;
      if (i + 1 < older_.size()) limit = std::min(limit, older_[i + 1].address);
      const Bytes room = Bytes{limit - each.address} - each.size;
      if (!each.known && (room < Bytes{} || !rules_.splits_off(range->small, each.size, room))) each.size += room;
      if (each.size <= Bytes{0} || each.end() > limit) is_known_ = false;
    }
  }

  /// A layout for each segment; of expandable ones all ranges are one, from the lowest address that is ever held.
  void lay_out() {
    std::vector<HistorySegment>& layouts = made_.at_start.emplace();
    std::map<std::pair<StreamId, bool>, std::size_t> expandable;
    for (const auto& [begin, range] : held_.ranges()) {
      const StreamId stream = number_of(range.stream, range.pool);
      std::size_t place = layouts.size();
      if (range.expandable) place = expandable.try_emplace({stream, range.small}, place).first->second;
      if (place == layouts.size()) {
        const std::int64_t base = range.expandable ? lowest(range) : begin;
        layouts.push_back({{stream, range.small, base, {}}, {}});
      }
      lay_out(range, layouts[place]);
    }
  }

  std::int64_t lowest(const HeldRange& of) const {
    std::int64_t address = of.begin;
    for (const HeldRange& range : taken_) {
      if (range.is_of_one_segment_with(of)) address = std::min(address, range.begin);
    }
    return address;
  }

  void lay_out(const HeldRange& range, HistorySegment& made) const {
    std::int64_t at = made.layout.address;
    for (const SegmentLayout::Piece& piece : made.layout.pieces) at += piece.size.count;
    const auto fill = [&](std::int64_t to, BlockState state) {
      if (at < to) made.layout.pieces.push_back({Bytes{to - at}, {}, state});
      at = std::max(at, to);
    };
    fill(range.begin, BlockState::unmapped);
    for (auto each = std::ranges::lower_bound(older_, range.begin, {}, &Older::address);
         each != older_.end() && each->address < range.end; ++each) {
      fill(each->address, BlockState::free);
      made.layout.pieces.push_back({each->size, made_.buffers[each->buffer].size, BlockState::allocated});
      made.buffers.push_back(each->buffer);
      at = each->end();
    }
    fill(range.end, BlockState::free);
  }

  /// The bytes in blocks that are handed out, by address: each takes the free bytes behind it that are not split off.
  void follow_blocks() {
    struct Live {
      Bytes size;
      bool is_given;
    };
    std::map<std::int64_t, Live> live;
    Bytes allocated;
    for (const Older& each : older_) {
      live[each.address] = {each.size, each.is_given};
      if (!each.is_given) allocated += each.size;
    }
    made_.peak_allocated = allocated;
    for (std::size_t e = 0; e < events_.size(); ++e) {
      const SnapshotEvent& event = events_[e];
      if (takes_memory(event)) held_.add(taken_[e]);
      if (gives_back(event)) held_.take(event.address, event.size);
      const auto found = live.find(event.address);
      const bool gives = event.action == AllocatorAction::free_requested ||
                         event.action == AllocatorAction::free_completed || event.action == AllocatorAction::alloc;
      if (gives && found != live.end() && !found->second.is_given) {
        allocated -= found->second.size;
        found->second.is_given = true;
      }
      if (event.action == AllocatorAction::free_completed) live.erase(event.address);
      if (event.action != AllocatorAction::alloc) continue;
      Bytes size = rules_.rounded(std::max(event.size, Bytes{1}));
      if (const std::optional<HeldRange> range = held_.around(event.address); range && is_known_) {
        const auto next = live.upper_bound(event.address);
        const std::int64_t end = next == live.end() ? range->end : std::min(range->end, next->first);
        const Bytes room = Bytes{end - event.address} - size;
        if (room > Bytes{0} && !rules_.splits_off(range->small, size, room)) size += room;
      }
      live[event.address] = {size, false};
      allocated += size;
      made_.peak_allocated = std::max(made_.peak_allocated, allocated);
    }
  }

  std::span<const SnapshotEvent> events_;
  CachingAllocator rules_;
  SnapshotHistory made_;
  HeldMemory held_;
  std::vector<HeldRange> taken_;  ///< by event
  std::map<std::int64_t, LastBlock> last_;
  std::map<std::int64_t, std::size_t> live_;  ///< buffers by address
  std::set<std::int64_t> requested_;          ///< addresses whose free was asked for
  std::vector<Older> older_;
  std::map<std::pair<std::int64_t, SnapshotPool>, StreamId> numbers_;
  std::set<std::int64_t> handles_;
  bool is_known_ = true, is_native_ = false;
  bool tells_requests_ = false;  ///< not all versions write when a free was asked for
};

SnapshotHistory history_of(const MemorySnapshot& snapshot, std::uint32_t device) {
  return HistoryReader(snapshot, device).read();
}

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
