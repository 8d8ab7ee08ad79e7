#include "sim/memory/caching_allocator.h"

#include <algorithm>

#include "sim/core/expects.h"

namespace plimsoll {
namespace {

/// Addresses of an expandable segment: more than any schedule needs, and whole pages of either pool.
constexpr Bytes address_space = (std::int64_t{1} << 36) * CachingAllocator::large_segment;

constexpr Bytes round_down(Bytes size, Bytes unit) {
  return (size.count / unit.count) * unit;
}
constexpr Bytes round_up(Bytes size, Bytes unit) {
  return round_down(size + unit - Bytes{1}, unit);
}

constexpr Bytes segment_for(Bytes size) {
  if (size <= CachingAllocator::small_limit) return CachingAllocator::small_segment;
  if (size < CachingAllocator::own_segment_from) return CachingAllocator::large_segment;
  return round_up(size, CachingAllocator::own_segment_rounding);
}

}  // namespace

std::optional<BlockId> CachingAllocator::allocate(Bytes size, StreamId stream) {
  EXPECTS(size > Bytes{0});
  const Bytes rounded = round_up(size, rounding);
  const std::uint32_t pool = pool_of(stream, rounded <= small_limit);
  std::optional<BlockId> found = best_fit(pools_[pool], rounded);
  if (!found) found = grow(pool, rounded);
  if (!found) {
    release_cached();
    found = grow(pool, rounded);
  }
  if (!found) return std::nullopt;

  unlist(*found);
  if (at(*found).size - rounded >= least_remainder(pools_[pool])) list(split(*found, rounded));
  at(*found).state = BlockState::allocated;
  allocated_ += at(*found).size;
  return found;
}

void CachingAllocator::free(BlockId id) {
  EXPECTS(id.index < blocks_.size() && at(id).state == BlockState::allocated);
  allocated_ -= at(id).size;
  at(id).state = BlockState::free;
  settle(id);
}

BlockView CachingAllocator::operator[](BlockId id) const {
  const Block& block = at(id);
  const Pool& pool = pools_[block.pool];
  return {pool.stream, pool.small, block.segment, block.offset, block.size, block.state};
}

std::vector<BlockView> CachingAllocator::blocks() const {
  std::vector<BlockId> firsts;
  std::vector<bool> used(blocks_.size(), true);
  for (const BlockId id : spare_) used[id.index] = false;
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    if (used[b] && !blocks_[b].previous) firsts.push_back(id_at<BlockId>(b));
  }
  std::ranges::sort(firsts, {}, [&](BlockId id) { return std::pair(at(id).pool, at(id).segment); });
  std::vector<BlockView> views;
  for (const BlockId first : firsts) {
    for (std::optional<BlockId> id = first; id; id = at(*id).next) views.push_back((*this)[*id]);
  }
  return views;
}

std::uint32_t CachingAllocator::pool_of(StreamId stream, bool small) {
  const auto [found, is_new] = pool_by_.try_emplace({stream, small}, static_cast<std::uint32_t>(pools_.size()));
  if (is_new) pools_.push_back({.stream = stream, .small = small});
  return found->second;
}

/// The least that is split off, rather than handed out along with the block.
Bytes CachingAllocator::least_remainder(const Pool& pool) const {
  return pool.small || segments_ == Segments::expandable ? rounding : small_limit + rounding;
}

// ---- blocks and the lists of those that are not allocated

BlockId CachingAllocator::new_block(Block block) {
  if (spare_.empty()) {
    blocks_.push_back(block);
    return id_at<BlockId>(blocks_.size() - 1);
  }
  const BlockId id = spare_.back();
  spare_.pop_back();
  at(id) = block;
  return id;
}

void CachingAllocator::list(BlockId id) {
  const Block& block = at(id);
  Pool& pool = pools_[block.pool];
  if (block.state == BlockState::free) pool.fitting.emplace(block.size, block.segment, block.offset, id);
  if (block.state == BlockState::unmapped) pool.unmapped.emplace(block.offset, id);
}

void CachingAllocator::unlist(BlockId id) {
  const Block& block = at(id);
  Pool& pool = pools_[block.pool];
  if (block.state == BlockState::free) pool.fitting.erase({block.size, block.segment, block.offset, id});
  if (block.state == BlockState::unmapped) pool.unmapped.erase(block.offset);
}

/// Cuts an unlisted block after `size`; the new block behind the cut is unlisted too.
BlockId CachingAllocator::split(BlockId id, Bytes size) {
  Block behind = at(id);
  behind.offset += size;
  behind.size -= size;
  behind.previous = id;
  const BlockId cut = new_block(behind);
  if (behind.next) at(*behind.next).previous = cut;
  at(id).next = cut;
  at(id).size = size;
  return cut;
}

/// Adds the next block to this one, both unlisted.
void CachingAllocator::join_next(BlockId id) {
  const BlockId gone = *at(id).next;
  at(id).size += at(gone).size;
  at(id).next = at(gone).next;
  if (at(id).next) at(*at(id).next).previous = id;
  spare_.push_back(gone);
}

/// Merges an unlisted block with the neighbours that share its state, and lists what comes of it.
BlockId CachingAllocator::settle(BlockId id) {
  const auto alike = [&](std::optional<BlockId> other) { return other && at(*other).state == at(id).state; };
  if (alike(at(id).next)) {
    unlist(*at(id).next);
    join_next(id);
  }
  if (alike(at(id).previous)) {
    id = *at(id).previous;
    unlist(id);
    join_next(id);
  }
  list(id);
  return id;
}

// ---- finding room

/// How large a free block is, or could become.
Bytes CachingAllocator::room(BlockId id) const {
  const std::optional<BlockId> next = at(id).next;
  const bool grows = next && at(*next).state == BlockState::unmapped;
  return grows ? at(id).size + at(*next).size : at(id).size;
}

/// An expandable segment's blocks compete with their room, so that its growing end is filled last. The comparison stops
/// at the first block that is no better, as in PyTorch.
std::optional<BlockId> CachingAllocator::best_fit(const Pool& pool, Bytes size) const {
  const auto id_of = [](const auto& entry) { return std::get<BlockId>(entry); };
  auto best = pool.fitting.lower_bound({size, 0, Bytes{0}, BlockId{0}});
  if (best == pool.fitting.end()) return std::nullopt;
  if (segments_ == Segments::expandable) {
    for (auto next = std::next(best); next != pool.fitting.end() && room(id_of(*next)) < room(id_of(*best)); ++next) {
      best = next;
    }
  }
  return id_of(*best);
}

/// A listed free block of at least `size`, made from new memory.
std::optional<BlockId> CachingAllocator::grow(std::uint32_t pool, Bytes size) {
  return segments_ == Segments::native ? new_segment(pool, size) : extend(pool, size);
}

std::optional<BlockId> CachingAllocator::new_segment(std::uint32_t pool, Bytes size) {
  const Bytes segment = segment_for(size);
  if (!fits(segment)) return std::nullopt;
  reserved_ += segment;
  const BlockId id = new_block({.pool = pool, .segment = pools_[pool].segments++, .size = segment});
  list(id);
  return id;
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

/// Whether this block and those after it have `size` bytes before the next allocated one.
bool CachingAllocator::has_room(BlockId first, Bytes size) const {
  Bytes sum;
  for (std::optional<BlockId> id = first; id && sum < size && at(*id).state != BlockState::allocated;
       id = at(*id).next) {
    sum += at(*id).size;
  }
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
  unlist(id);
  if (mapped < at(id).size) list(split(id, mapped));
  at(id).state = BlockState::free;
  return settle(id);
}

// ---- giving back

void CachingAllocator::release_cached() {
  for (Pool& pool : pools_) {
    std::vector<BlockId> free_blocks;
    for (const auto& entry : pool.fitting) free_blocks.push_back(std::get<BlockId>(entry));
    for (const BlockId id : free_blocks) {
      if (segments_ == Segments::expandable) {
        unmap_pages(id);
      } else if (!at(id).previous && !at(id).next) {
        unlist(id);
        reserved_ -= at(id).size;
        spare_.push_back(id);
      }
    }
  }
}

/// Gives back the pages that lie entirely in this free block.
void CachingAllocator::unmap_pages(BlockId id) {
  const Bytes unit = page(pools_[at(id).pool]);
  const Bytes first = round_up(at(id).offset, unit), last = round_down(at(id).offset + at(id).size, unit);
  if (first >= last) return;
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
