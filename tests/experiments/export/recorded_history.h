#pragma once
// A caching allocator by addresses, as slow and plain as can be, that writes down what it does as PyTorch does: for
// histories whose segments lie anywhere, of several streams and pools, with some of the cache given back on the way.

#include <algorithm>
#include <map>
#include <vector>

#include "experiments/export/memory_snapshot.h"
#include "tests/generate/random.h"

namespace plimsoll::test {

class RecordedHistory {
 public:
  explicit RecordedHistory(std::uint64_t seed) : random_(seed) {}

  std::int64_t allocate(std::int64_t asked, std::int64_t stream, SnapshotPool pool = {}) {
    const std::int64_t size = (asked + 511) / 512 * 512;
    const bool small = size <= mib;
    Block* best = nullptr;
    for (auto& [address, segment] : segments_) {
      if (segment.stream != stream || segment.pool != pool || segment.small != small) continue;
      for (auto& [at, block] : segment.blocks) {  // ties: the lower address
        if (!block.is_used && block.size >= size && (best == nullptr || block.size < best->size)) best = &block;
      }
    }
    if (best == nullptr) best = &new_segment(size, stream, pool, small);
    std::map<std::int64_t, Block>& blocks = segment_at(best->address).blocks;
    const std::int64_t rest = best->size - size;
    if (small ? rest >= 512 : rest > mib) {
      blocks[best->address + size] = {best->address + size, rest, 0, false};
      best->size = size;
    }
    best->asked = asked;
    best->is_used = true;
    log(AllocatorAction::alloc, best->address, asked, stream);
    return best->address;
  }

  void free(std::int64_t address) {
    Segment& segment = segment_at(address);
    const std::int64_t asked = segment.blocks.at(address).asked;
    log(AllocatorAction::free_requested, address, asked, segment.stream);
    log(AllocatorAction::free_completed, address, asked, segment.stream);
    segment.blocks.at(address).is_used = false;
    for (auto block = segment.blocks.begin(); std::next(block) != segment.blocks.end();) {
      const auto next = std::next(block);
      if (block->second.is_used || next->second.is_used) {
        ++block;
      } else {
        block->second.size += next->second.size;
        segment.blocks.erase(next);
      }
    }
  }

  /// Of all that is free, so much as is asked for goes back.
  void give_back(std::size_t segments) {
    for (auto each = segments_.begin(); each != segments_.end() && segments > 0;) {
      const auto& [address, segment] = *each;
      if (segment.blocks.size() > 1 || segment.blocks.begin()->second.is_used) {
        ++each;
        continue;
      }
      log(AllocatorAction::segment_free, address, segment.size, segment.stream);
      each = segments_.erase(each);
      --segments;
    }
  }

  std::int64_t reserved() const {
    std::int64_t sum = 0;
    for (const auto& [address, segment] : segments_) sum += segment.size;
    return sum;
  }
  std::int64_t allocated() const {
    std::int64_t sum = 0;
    for (const auto& [address, segment] : segments_) {
      for (const auto& [at, block] : segment.blocks) sum += block.is_used ? block.size : 0;
    }
    return sum;
  }
  std::size_t events() const { return events_.size(); }

  /// What is there now, and what happened from some event on.
  MemorySnapshot snapshot(std::size_t from) const {
    MemorySnapshot made;
    made.traces.emplace_back(events_.begin() + static_cast<std::ptrdiff_t>(from), events_.end());
    for (const auto& [address, segment] : segments_) {
      SnapshotSegment& there = made.segments.emplace_back();
      there.address = address;
      there.stream = segment.stream;
      there.pool = segment.pool;
      there.total = Bytes{segment.size};
      there.small = segment.small;
      for (const auto& [at, block] : segment.blocks) {
        const BlockState state = block.is_used ? BlockState::allocated : BlockState::free;
        there.blocks.push_back({at, Bytes{block.size}, Bytes{block.is_used ? block.asked : 0}, state});
      }
    }
    return made;
  }

 private:
  static constexpr std::int64_t mib = 1 << 20;

  struct Block {
    std::int64_t address = 0, size = 0, asked = 0;
    bool is_used = false;
  };
  struct Segment {
    std::int64_t size = 0, stream = 0;
    SnapshotPool pool{};
    bool small = false;
    std::map<std::int64_t, Block> blocks;
  };

  /// Anywhere, on its own.
  Block& new_segment(std::int64_t size, std::int64_t stream, SnapshotPool pool, bool small) {
    std::int64_t address = 0;
    do {
      address = (1 + static_cast<std::int64_t>(random_.below(1 << 16))) << 32;
    } while (segments_.contains(address));
    const std::int64_t bytes = small             ? 2 * mib
                               : size < 10 * mib ? 20 * mib
                                                 : (size + 2 * mib - 1) / (2 * mib) * (2 * mib);
    log(AllocatorAction::segment_alloc, address, bytes, stream);
    Segment& made = segments_[address] = {bytes, stream, pool, small, {}};
    return made.blocks[address] = {address, bytes, 0, false};
  }

  Segment& segment_at(std::int64_t address) { return std::prev(segments_.upper_bound(address))->second; }

  void log(AllocatorAction action, std::int64_t address, std::int64_t size, std::int64_t stream) {
    events_.push_back({.action = action, .address = address, .size = Bytes{size}, .stream = stream});
  }

  Random random_;
  std::map<std::int64_t, Segment> segments_;
  std::vector<SnapshotEvent> events_;
};

}  // namespace plimsoll::test
