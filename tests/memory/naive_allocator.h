#pragma once
// The caching allocator once more, as slow and plain as can be: every segment a list of blocks, everything found by
// looking at all of them. The tests compare the two request by request.

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "sim/memory/caching_allocator.h"

namespace plimsoll::test {

class NaiveAllocator {
 public:
  NaiveAllocator(Segments kind, std::int64_t capacity) : expandable_(kind == Segments::expandable), left_(capacity) {}

  struct Place {
    std::uint32_t stream;
    bool small;
    std::uint32_t segment;
    std::int64_t offset;
    friend bool operator==(const Place&, const Place&) = default;
  };

  std::optional<Place> allocate(std::int64_t size, std::uint32_t stream) {
    size = (size + 511) / 512 * 512;
    const bool small = size <= mib;
    std::optional<Found> found = look(size, stream, small);
    if (!found) found = make(size, stream, small);
    if (!found) {
      give_back();
      found = make(size, stream, small);
    }
    if (!found) return std::nullopt;
    Segment& segment = segments_[found->segment];
    Block& block = segment.blocks[found->block];
    const std::int64_t rest = block.size - size;
    const bool cut = small || expandable_ ? rest >= 512 : rest > mib;
    block.state = BlockState::allocated;
    const Place place{stream, small, segment.number, block.offset};
    if (cut) {
      block.size = size;
      const Block behind{place.offset + size, rest, BlockState::free};
      segment.blocks.insert(segment.blocks.begin() + static_cast<std::ptrdiff_t>(found->block) + 1, behind);
    }
    return place;
  }

  void free(const Place& place) {
    for (Segment& s : segments_) {
      if (s.stream != place.stream || s.small != place.small || s.number != place.segment) continue;
      for (Block& b : s.blocks) {
        if (b.offset == place.offset) b.state = BlockState::free;
      }
      tidy(s);
    }
  }

  std::int64_t bytes_in(BlockState state) const {
    std::int64_t sum = 0;
    for (const Segment& s : segments_) {
      for (const Block& b : s.blocks) sum += b.state == state ? b.size : 0;
    }
    return sum;
  }
  std::int64_t allocated() const { return bytes_in(BlockState::allocated); }
  std::int64_t reserved() const { return allocated() + bytes_in(BlockState::free); }

 private:
  static constexpr std::int64_t mib = 1 << 20;

  struct Block {
    std::int64_t offset, size;
    BlockState state;
  };
  struct Segment {
    std::uint32_t stream;
    bool small;
    std::uint32_t number;
    std::vector<Block> blocks;
  };
  struct Found {
    std::size_t segment, block;
  };

  /// Joins neighbours that are both free or both unmapped.
  static void tidy(Segment& s) {
    for (std::size_t b = 0; b + 1 < s.blocks.size();) {
      Block &one = s.blocks[b], &two = s.blocks[b + 1];
      if (one.state == two.state && one.state != BlockState::allocated) {
        one.size += two.size;
        s.blocks.erase(s.blocks.begin() + static_cast<std::ptrdiff_t>(b) + 1);
      } else {
        ++b;
      }
    }
  }

  static std::int64_t room(const Segment& s, std::size_t b) {
    const bool grows = b + 1 < s.blocks.size() && s.blocks[b + 1].state == BlockState::unmapped;
    return s.blocks[b].size + (grows ? s.blocks[b + 1].size : 0);
  }

  std::optional<Found> look(std::int64_t size, std::uint32_t stream, bool small) const {
    std::vector<Found> fitting;
    for (std::size_t s = 0; s < segments_.size(); ++s) {
      if (segments_[s].stream != stream || segments_[s].small != small) continue;
      for (std::size_t b = 0; b < segments_[s].blocks.size(); ++b) {
        const Block& block = segments_[s].blocks[b];
        if (block.state == BlockState::free && block.size >= size) fitting.push_back({s, b});
      }
    }
    // Segments are in order of age and blocks in order of address, so a stable sort keeps those ties.
    std::stable_sort(fitting.begin(), fitting.end(), [&](Found a, Found b) {
      return segments_[a.segment].blocks[a.block].size < segments_[b.segment].blocks[b.block].size;
    });
    if (fitting.empty()) return std::nullopt;
    std::size_t best = 0;
    const auto room_of = [&](std::size_t f) { return room(segments_[fitting[f].segment], fitting[f].block); };
    while (expandable_ && best + 1 < fitting.size() && room_of(best + 1) < room_of(best)) ++best;
    return fitting[best];
  }

  std::optional<Found> make(std::int64_t size, std::uint32_t stream, bool small) {
    if (!expandable_) {
      const std::int64_t bytes = small             ? 2 * mib
                                 : size < 10 * mib ? 20 * mib
                                                   : (size + 2 * mib - 1) / (2 * mib) * (2 * mib);
      if (reserved() + bytes > left_) return std::nullopt;
      segments_.push_back({stream, small, made_[{stream, small}]++, {{0, bytes, BlockState::free}}});
      return Found{segments_.size() - 1, 0};
    }
    std::size_t s = 0;
    while (s < segments_.size() && (segments_[s].stream != stream || segments_[s].small != small)) ++s;
    if (s == segments_.size()) {
      segments_.push_back({stream, small, 0, {{0, 20 * mib * 1'000'000'000, BlockState::unmapped}}});
    }
    Segment& segment = segments_[s];
    // The first unmapped block from which on, with a free one before it, enough follows that is not allocated.
    for (std::size_t b = 0; b < segment.blocks.size(); ++b) {
      if (segment.blocks[b].state != BlockState::unmapped) continue;
      const std::size_t first = b > 0 && segment.blocks[b - 1].state == BlockState::free ? b - 1 : b;
      std::int64_t run = 0;
      for (std::size_t e = first; e < segment.blocks.size() && segment.blocks[e].state != BlockState::allocated; ++e) {
        run += segment.blocks[e].size;
      }
      if (run >= size) return map(s, segment.blocks[first].offset, size);
    }
    return std::nullopt;
  }

  /// Maps page by page what is not yet mapped of [offset, offset + size).
  std::optional<Found> map(std::size_t s, std::int64_t offset, std::int64_t size) {
    Segment& segment = segments_[s];
    const std::int64_t page = (segment.small ? 2 : 20) * mib;
    for (;;) {
      const auto start = std::find_if(segment.blocks.begin(), segment.blocks.end(),
                                      [&](const Block& b) { return b.offset == offset; });
      const auto at = static_cast<std::size_t>(start - segment.blocks.begin());
      if (start->state == BlockState::free && start->size >= size) return Found{s, at};
      const std::size_t gap = start->state == BlockState::free ? at + 1 : at;
      const std::int64_t have = start->state == BlockState::free ? start->size : 0;
      const Block hole = segment.blocks[gap];
      const std::int64_t wanted = std::min(hole.size, (size - have + page - 1) / page * page);
      if (reserved() + wanted > left_) return std::nullopt;
      segment.blocks[gap] = {hole.offset, wanted, BlockState::free};
      if (wanted < hole.size) {
        const Block behind{hole.offset + wanted, hole.size - wanted, BlockState::unmapped};
        segment.blocks.insert(segment.blocks.begin() + static_cast<std::ptrdiff_t>(gap) + 1, behind);
      }
      tidy(segment);
    }
  }

  void give_back() {
    if (!expandable_) {
      std::erase_if(segments_,
                    [](const Segment& s) { return s.blocks.size() == 1 && s.blocks[0].state == BlockState::free; });
      return;
    }
    for (Segment& s : segments_) {
      const std::int64_t page = (s.small ? 2 : 20) * mib;
      std::vector<Block> blocks;
      for (const Block& b : s.blocks) {
        const std::int64_t first = (b.offset + page - 1) / page * page, last = (b.offset + b.size) / page * page;
        if (b.state != BlockState::free || first >= last) {
          blocks.push_back(b);
          continue;
        }
        if (first > b.offset) blocks.push_back({b.offset, first - b.offset, BlockState::free});
        blocks.push_back({first, last - first, BlockState::unmapped});
        if (last < b.offset + b.size) blocks.push_back({last, b.offset + b.size - last, BlockState::free});
      }
      s.blocks = blocks;
      tidy(s);
    }
  }

  bool expandable_;
  std::int64_t left_;
  std::map<std::pair<std::uint32_t, bool>, std::uint32_t> made_;  ///< segments ever, per pool
  std::vector<Segment> segments_;
};

}  // namespace plimsoll::test
