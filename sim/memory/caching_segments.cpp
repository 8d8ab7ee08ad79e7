// How the caching allocator finds room in free blocks, takes memory from the device and gives it back.

#include <algorithm>

#include "sim/core/expects.h"
#include "sim/memory/caching_allocator.h"
#include "sim/memory/free_blocks.h"
#include "sim/memory/round.h"

namespace plimsoll {
namespace {

/// Addresses of an expandable segment: more than any schedule needs, and whole pages of either pool.
constexpr Bytes address_space = (std::int64_t{1} << 36) * CachingAllocator::large_segment;

}  // namespace

// ---- free blocks

/// How large a free block is, or could become.
Bytes CachingAllocator::room(BlockId id) const {
  const std::optional<BlockId> next = at(id).next;
  const bool grows = next && at(*next).state == BlockState::unmapped;
  return grows ? at(id).size + at(*next).size : at(id).size;
}

/// An expandable segment's blocks compete with their room, so that its growing end is filled last. The comparison stops
/// at the first block that is no better, as in PyTorch. Where blocks are not split from a size on, one that is too
/// large is refused without looking further.
std::optional<BlockId> CachingAllocator::best_fit(const Pool& pool, Bytes size) const {
  auto best = pool.fitting.at_least(size);
  if (best == pool.fitting.end()) return std::nullopt;
  if (settings_.segments == Segments::expandable) {
    for (auto next = std::next(best); next != pool.fitting.end() && room(next->block) < room(best->block); ++next) {
      best = next;
    }
  }
  if (settings_.max_split) {
    const Bytes limit = *settings_.max_split;
    if (size < limit ? best->size >= limit : best->size >= size + max_non_split_rounding) return std::nullopt;
  }
  return best->block;
}

/// Free blocks of a pool, the largest first, as one block; what they lack comes from a new segment.
std::optional<BlockId> CachingAllocator::stitch(std::uint32_t pool, Bytes size) {
  std::vector<BlockId> pieces;
  Bytes sum;
  const FreeBlocks& fitting = pools_[pool].fitting;
  for (auto from = fitting.end(); from != fitting.begin() && sum < size;) {
    --from;
    pieces.push_back(from->block);
    sum += from->size;
  }
  if (sum < size) {
    const std::optional<BlockId> rest = new_segment(pool, size - sum);
    if (!rest) return std::nullopt;
    pieces.push_back(*rest);
    sum = size;
  }
  for (const BlockId piece : pieces) unlist(piece);
  if (sum > size) list(split(pieces.back(), at(pieces.back()).size - (sum - size)));
  for (const BlockId piece : pieces) {
    at(piece).state = BlockState::allocated;
    at(piece).requested = Bytes{};
  }
  const BlockId first = pieces.front();
  pieces.erase(pieces.begin());
  if (!pieces.empty()) {
    at(first).has_pieces = true;
    pieces_[first] = std::move(pieces);
  }
  return first;
}

// ---- new memory

/// An unlisted block of at least `size` where no free block is large enough.
std::optional<BlockId> CachingAllocator::make_room(std::uint32_t pool, Bytes size) {
  const bool stitches =
      settings_.segments == Segments::stitched && !pools_[pool].small && size >= settings_.fragment_limit;
  const auto attempt = [&]() -> std::optional<BlockId> {
    if (stitches && !settings_.stitch_late) return stitch(pool, size);
    const std::optional<BlockId> grown = grow(pool, size);
    if (grown) unlist(*grown);
    return grown || !stitches ? grown : stitch(pool, size);
  };
  collect_garbage();
  std::optional<BlockId> found = attempt();
  if (!found && release_oversized(pool, size)) found = attempt();
  if (!found) {
    release_cached();
    ++retries_;
    found = attempt();
  }
  return found;
}

/// A listed free block of at least `size`, made from new memory.
std::optional<BlockId> CachingAllocator::grow(std::uint32_t pool, Bytes size) {
  const Bytes segment = segment_for(pools_[pool], size);
  if (settings_.segments != Segments::expandable) return new_segment(pool, segment);
  return is_allowed(segment) ? extend(pool, size) : std::nullopt;
}

Bytes CachingAllocator::segment_for(const Pool& pool, Bytes size) const {
  if (pool.small) return small_segment;
  if (settings_.segments == Segments::stitched) return size;  // whole pages
  return size < own_segment_from ? large_segment : round_up(size, own_segment_rounding);
}

std::optional<BlockId> CachingAllocator::new_segment(std::uint32_t pool, Bytes segment) {
  if (!is_allowed(segment) || !fits(segment)) return std::nullopt;
  reserved_ += segment;
  const BlockId id = new_block(
      {.pool = pool, .segment = pools_[pool].segments++, .base = address_for(pools_[pool], segment), .size = segment});
  log(AllocatorAction::segment_alloc, at(id), {}, segment);
  list(id);
  return id;
}

std::int64_t CachingAllocator::address_for(const Pool& pool, Bytes segment) {
  std::deque<std::int64_t>& expected = expected_[{pool.stream, pool.small, segment}];
  std::int64_t address = next_address_;
  if (!expected.empty()) {
    address = expected.front();
    expected.pop_front();
  }
  next_address_ = std::max(next_address_, address + segment.count);
  return address;
}

void CachingAllocator::expect_segment(StreamId stream, bool small, Bytes size, std::int64_t address) {
  expected_[{stream, small, size}].push_back(address);
}

std::vector<BlockId> CachingAllocator::adopt(const SegmentLayout& layout) {
  const std::uint32_t pool = pool_of(layout.stream, layout.small);
  const bool is_expandable = settings_.segments == Segments::expandable;
  EXPECTS(!is_expandable || pools_[pool].segments == 0);
  const std::uint32_t segment = pools_[pool].segments++;
  std::vector<BlockId> made;
  Bytes offset;
  const auto add = [&](Bytes size, BlockState state) {
    const BlockId id = new_block({.pool = pool,
                                  .segment = segment,
                                  .base = layout.address,
                                  .offset = offset,
                                  .size = size,
                                  .state = state,
                                  .previous = made.empty() ? std::nullopt : std::optional(made.back())});
    if (!made.empty()) at(made.back()).next = id;
    made.push_back(id);
    offset += size;
  };
  for (const SegmentLayout::Piece& piece : layout.pieces) {
    add(piece.size, piece.state);
    if (piece.state != BlockState::unmapped) reserved_ += piece.size;
    if (piece.state != BlockState::allocated) continue;
    at(made.back()).requested = piece.requested;
    requested_ += piece.requested;
    allocated_ += piece.size;
    active_ += piece.size;
  }
  next_address_ = std::max(next_address_, layout.address + offset.count);
  const std::size_t pieces = made.size();
  if (is_expandable) add(address_space - offset, BlockState::unmapped);
  for (const BlockId id : made) list(id);
  made.resize(pieces);
  return made;
}

/// Maps pages where they and the free blocks between them make a block of `size`. Pages that were mapped before the
/// capacity was reached stay mapped.
std::optional<BlockId> CachingAllocator::extend(std::uint32_t pool, Bytes size) {
  const std::optional<BlockId> first = first_room(pool, size);
  EXPECTS(first.has_value());  // addresses do not run out
  BlockId grown = *first;
  if (at(grown).state == BlockState::unmapped) {
    const std::optional<BlockId> mapped = map_pages(grown, std::min(at(grown).size, size));
    if (!mapped) return std::nullopt;
    grown = *mapped;
  }
  while (at(grown).size < size) {
    const BlockId next = *at(grown).next;
    const std::optional<BlockId> mapped = map_pages(next, std::min(at(next).size, size - at(grown).size));
    if (!mapped) return std::nullopt;
    grown = *mapped;
  }
  return grown;
}

/// Whether this block and those after it have `size` bytes before the next one that is in use.
bool CachingAllocator::has_room(BlockId first, Bytes size) const {
  Bytes sum;
  for (std::optional<BlockId> id = first; id && sum < size && !is_in_use(*id); id = at(*id).next) sum += at(*id).size;
  return sum >= size;
}

/// The unmapped block with the lowest address, or the free one before it, from which on there is room.
std::optional<BlockId> CachingAllocator::first_room(std::uint32_t pool, Bytes size) {
  if (pools_[pool].segments == 0) {
    pools_[pool].segments = 1;
    list(new_block({.pool = pool, .size = address_space, .state = BlockState::unmapped}));
  }
  for (const auto& [offset, unmapped] : pools_[pool].unmapped) {
    const std::optional<BlockId> before = at(unmapped).previous;
    const BlockId first = before && at(*before).state == BlockState::free ? *before : unmapped;
    if (has_room(first, size)) return first;
  }
  return std::nullopt;
}

/// Maps the unmapped block's first pages, `size` rounded up; returns the free block that they become part of.
std::optional<BlockId> CachingAllocator::map_pages(BlockId id, Bytes size) {
  const Bytes mapped = round_up(size, page(pools_[at(id).pool]));
  if (!fits(mapped)) return std::nullopt;
  reserved_ += mapped;
  log(AllocatorAction::segment_map, at(id), at(id).offset, mapped);
  unlist(id);
  if (mapped < at(id).size) list(split(id, mapped));
  at(id).state = BlockState::free;
  return settle(id);
}

// ---- giving back

void CachingAllocator::release_cached() {
  for (auto& [stream, queue] : queues_) queue.reached = queue.waiting.size();
  take_back_reached();
  for (Pool& pool : pools_) {
    std::vector<BlockId> free_blocks;
    for (const FreeBlocks::Entry& entry : pool.fitting) free_blocks.push_back(entry.block);
    for (const BlockId id : free_blocks) {
      if (settings_.segments == Segments::expandable) {
        unmap_pages(id);
      } else if (is_whole(id)) {
        release_segment(id);
      }
    }
  }
}

void CachingAllocator::release_segment_at(std::int64_t address) {
  for (const Pool& pool : pools_) {
    for (const FreeBlocks::Entry& free : pool.fitting) {
      if (free.address == address && is_whole(free.block)) return release_segment(free.block);
    }
  }
}

/// The block is free, and all of its segment.
void CachingAllocator::release_segment(BlockId id) {
  EXPECTS(is_whole(id));
  log(AllocatorAction::segment_free, at(id), {}, at(id).size);
  unlist(id);
  reserved_ -= at(id).size;
  spare_.push_back(id);
}

/// Free blocks that are too large to be split go back: the smallest that alone makes enough room, else the largest ones
/// until they do. Whether they did.
bool CachingAllocator::release_oversized(std::uint32_t pool, Bytes size) {
  if (!settings_.max_split) return false;
  const FreeBlocks& fitting = pools_[pool].fitting;
  const Bytes wanted = std::max(size, *settings_.max_split);
  if (const auto alone = fitting.at_least(wanted); alone != fitting.end()) {
    release_segment(alone->block);
    return true;
  }
  Bytes released;
  while (released < wanted && !fitting.empty() && fitting.largest().size >= *settings_.max_split) {
    released += fitting.largest().size;
    release_segment(fitting.largest().block);
  }
  return released >= wanted;
}

/// Above the threshold, segments of the large pools that have been free for longer than the mean go back, whether or
/// not so many are needed; then those that are older than the mean of the rest, until enough have gone.
void CachingAllocator::collect_garbage() {
  if (!allowed_ || settings_.gc_threshold == 0) return;
  const Bytes threshold{static_cast<std::int64_t>(settings_.gc_threshold * static_cast<double>(allowed_->count))};
  if (reserved_ <= threshold) return;
  const Bytes wanted = reserved_ - threshold;
  const auto age = [&](BlockId id) { return large_searches_ - at(id).listed_at; };
  std::vector<BlockId> whole;
  std::uint64_t ages = 0;
  for (const Pool& pool : pools_) {
    if (pool.small) continue;
    for (const FreeBlocks::Entry& entry : pool.fitting) {
      if (!is_whole(entry.block)) continue;
      whole.push_back(entry.block);
      ages += age(entry.block);
    }
  }
  Bytes collected;
  while (collected < wanted && !whole.empty()) {
    const double mean = static_cast<double>(ages) / static_cast<double>(whole.size());
    std::erase_if(whole, [&](BlockId id) {
      if (static_cast<double>(age(id)) < mean) return false;
      collected += at(id).size;
      ages -= age(id);
      release_segment(id);
      return true;
    });
  }
}

/// Gives back the pages that lie entirely in this free block.
void CachingAllocator::unmap_pages(BlockId id) {
  const Bytes unit = page(pools_[at(id).pool]);
  const Bytes first = round_up(at(id).offset, unit), last = round_down(at(id).offset + at(id).size, unit);
  if (first >= last) return;
  log(AllocatorAction::segment_unmap, at(id), first, last - first);
  unlist(id);
  if (last < at(id).offset + at(id).size) list(split(id, last - at(id).offset));
  if (first > at(id).offset) {
    const BlockId pages = split(id, first - at(id).offset);
    list(id);
    id = pages;
  }
  reserved_ -= last - first;
  at(id).state = BlockState::unmapped;
  settle(id);
}

}  // namespace plimsoll
