// The start is found from the segments at the end, back through what the history takes and gives back. The size of a
// block that is still there at the end is known. One that was freed takes what its request is rounded up to, and with
// it what is free behind it, if that is too little to be split off: so small a block is never free by itself, since
// what is split off is larger, and so is whatever else was requested there.

#include "experiments/export/snapshot_history.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <tuple>

#include "experiments/export/snapshot_segments.h"

namespace plimsoll {
namespace {

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

}  // namespace

SnapshotHistory history_of(const MemorySnapshot& snapshot, std::uint32_t device) {
  return HistoryReader(snapshot, device).read();
}

}  // namespace plimsoll
