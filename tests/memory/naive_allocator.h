#pragma once
// The caching allocator once more, as slow and plain as can be: every segment a list of blocks, everything found by
// looking at all of them. The tests compare the two request by request.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "sim/memory/caching_allocator.h"

namespace plimsoll::test {

class NaiveAllocator {
 public:
  /// Not for stitched segments.
  NaiveAllocator(const CachingSettings& settings, std::int64_t capacity)
      : settings_(settings),
        expandable_(settings.segments == Segments::expandable),
        left_(capacity),
        allowed_(settings.fraction ? static_cast<std::int64_t>(*settings.fraction * static_cast<double>(capacity))
                                   : capacity),
        unsplit_from_(settings.max_split ? settings.max_split->count : std::numeric_limits<std::int64_t>::max()) {}

  struct Place {
    std::uint32_t stream;
    bool small;
    std::uint32_t segment;
    std::int64_t offset;
    friend bool operator==(const Place&, const Place&) = default;
  };

  std::optional<Place> allocate(std::int64_t size, std::uint32_t stream) {
    size = rounded(size);
    const bool small = size <= mib;
    searches_ += small ? 0 : 1;
    std::optional<Found> found = look(size, stream, small);
    if (!found) {
      collect();
      found = make(size, stream, small);
    }
    if (!found && give_back_unsplit(size, stream, small)) found = make(size, stream, small);
    if (!found) {
      give_back();
      found = make(size, stream, small);
    }
    if (!found) return std::nullopt;
    Segment& segment = segments_[found->segment];
    Block& block = segment.blocks[found->block];
    const std::int64_t rest = block.size - size;
    const bool cut = small || expandable_ ? rest >= 512 : rest > mib && size < unsplit_from_;
    block.state = BlockState::allocated;
    const Place place{stream, small, segment.number, block.offset};
    if (cut) {
      block.size = size;
      const Block behind{place.offset + size, rest, BlockState::free, searches_};
      segment.blocks.insert(segment.blocks.begin() + static_cast<std::ptrdiff_t>(found->block) + 1, behind);
    }
    return place;
  }

  void free(const Place& place) {
    for (Segment& s : segments_) {
      if (s.stream != place.stream || s.small != place.small || s.number != place.segment) continue;
      for (Block& b : s.blocks) {
        if (b.offset == place.offset) b.state = BlockState::free;
        if (b.offset == place.offset) b.since = searches_;
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
    std::int64_t since = 0;  ///< free: searches before it became so
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
        one.since = std::max(one.since, two.since);
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
    const std::int64_t found = segments_[fitting[best].segment].blocks[fitting[best].block].size;
    if (size < unsplit_from_ && found >= unsplit_from_) return std::nullopt;
    if (size >= unsplit_from_ && found >= size + 20 * mib) return std::nullopt;
    return fitting[best];
  }

  std::optional<Found> make(std::int64_t size, std::uint32_t stream, bool small) {
    const std::int64_t bytes = small             ? 2 * mib
                               : size < 10 * mib ? 20 * mib
                                                 : (size + 2 * mib - 1) / (2 * mib) * (2 * mib);
    if (settings_.fraction && reserved() + bytes > allowed_) return std::nullopt;
    if (!expandable_) {
      if (reserved() + bytes > left_) return std::nullopt;
      segments_.push_back({stream, small, made_[{stream, small}]++, {{0, bytes, BlockState::free, searches_}}});
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

  static bool is_free(const Segment& s) { return s.blocks.size() == 1 && s.blocks[0].state == BlockState::free; }

  /// Steps from one power of two to the next, where there are some.
  std::int64_t rounded(std::int64_t size) const {
    std::size_t index = 0;
    for (std::int64_t limit = 2 * mib; index < 15 && size >= limit; limit *= 2) ++index;
    const std::int64_t divisions = settings_.roundup[index];
    std::int64_t unit = 512;
    if (divisions > 1 && size > 512 * divisions) {
      std::int64_t power = 1;
      while (2 * power <= size) power *= 2;
      unit = power / divisions;
    }
    return (size + unit - 1) / unit * unit;
  }

  void drop(const std::vector<std::size_t>& which) {
    std::vector<Segment> kept;
    for (std::size_t s = 0; s < segments_.size(); ++s) {
      if (std::find(which.begin(), which.end(), s) == which.end()) kept.push_back(segments_[s]);
    }
    segments_ = kept;
  }

  void collect() {
    if (settings_.gc_threshold == 0) return;
    const auto threshold = static_cast<std::int64_t>(settings_.gc_threshold * static_cast<double>(allowed_));
    std::int64_t to_go = reserved() - threshold;
    while (to_go > 0) {
      std::int64_t sum = 0, count = 0;
      for (const Segment& s : segments_) {
        if (s.small || !is_free(s)) continue;
        sum += searches_ - s.blocks[0].since;
        ++count;
      }
      std::vector<std::size_t> old;
      for (std::size_t s = 0; s < segments_.size(); ++s) {
        const bool goes = !segments_[s].small && is_free(segments_[s]);
        if (goes && (searches_ - segments_[s].blocks[0].since) * count >= sum) old.push_back(s);
      }
      if (old.empty()) return;
      for (const std::size_t s : old) to_go -= segments_[s].blocks[0].size;
      drop(old);
    }
  }

  bool give_back_unsplit(std::int64_t size, std::uint32_t stream, bool small) {
    if (!settings_.max_split) return false;
    const std::int64_t wanted = std::max(size, unsplit_from_);
    std::vector<std::size_t> large;
    for (std::size_t s = 0; s < segments_.size(); ++s) {
      const Segment& each = segments_[s];
      const bool mine = each.stream == stream && each.small == small && is_free(each);
      if (mine && each.blocks[0].size >= unsplit_from_) large.push_back(s);
    }
    std::stable_sort(large.begin(), large.end(), [&](std::size_t a, std::size_t b) {
      return segments_[a].blocks[0].size < segments_[b].blocks[0].size;
    });
    for (const std::size_t s : large) {
      if (segments_[s].blocks[0].size < wanted) continue;
      drop({s});
      return true;
    }
    std::int64_t sum = 0;
    std::vector<std::size_t> going;
    while (!large.empty() && sum < wanted) {
      sum += segments_[large.back()].blocks[0].size;
      going.push_back(large.back());
      large.pop_back();
    }
    drop(going);
    return sum >= wanted;
  }

  void give_back() {
    if (!expandable_) {
      std::erase_if(segments_, is_free);
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

  CachingSettings settings_;
  bool expandable_;
  std::int64_t left_, allowed_, unsplit_from_;
  std::int64_t searches_ = 0;                                     ///< of large pools
  std::map<std::pair<std::uint32_t, bool>, std::uint32_t> made_;  ///< segments ever, per pool
  std::vector<Segment> segments_;
};

}  // namespace plimsoll::test
