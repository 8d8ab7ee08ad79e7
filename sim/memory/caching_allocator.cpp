#include "sim/memory/caching_allocator.h"

#include <algorithm>
#include <bit>

#include "sim/core/expects.h"
#include "sim/memory/round.h"

namespace plimsoll {

CachingAllocator::CachingAllocator(const CachingSettings& settings, std::optional<Bytes> capacity)
    : settings_(settings), capacity_(capacity) {
  EXPECTS(trouble_with(settings).empty());
  if (capacity && settings.fraction) {
    allowed_ = Bytes{static_cast<std::int64_t>(*settings.fraction * static_cast<double>(capacity->count))};
  }
}

std::optional<BlockId> CachingAllocator::allocate(Bytes requested, StreamId stream) {
  EXPECTS(requested > Bytes{0});
  if (is_anything_reached_) take_back_reached();
  const Bytes size = rounded(requested);
  const std::uint32_t pool = pool_of(stream, size <= small_limit);
  if (!pools_[pool].small) ++large_searches_;
  std::optional<BlockId> found = best_fit(pools_[pool], size);
  if (found) {
    unlist(*found);
  } else {
    found = make_room(pool, size);
  }
  if (!found) {
    log(AllocatorAction::oom, {.pool = pool}, {}, requested);
    return std::nullopt;
  }
  hand_out(*found, size, requested);
  return found;
}

void CachingAllocator::free(BlockId id) {
  EXPECTS(id.index < blocks_.size() && at(id).state == BlockState::allocated);
  log(AllocatorAction::free_requested, at(id), at(id).offset, at(id).requested);
  allocated_ -= at(id).size;
  if (at(id).has_pieces) {
    for (const BlockId piece : pieces_[id]) allocated_ -= at(piece).size;
  }
  if (!at(id).is_used_elsewhere) return reclaim(id);
  at(id).state = BlockState::pending;
  if (at(id).has_pieces) {
    for (const BlockId piece : pieces_[id]) at(piece).state = BlockState::pending;
  }
  const std::vector<StreamId> users = std::move(users_[id]);
  users_.erase(id);
  at(id).is_used_elsewhere = false;
  waits_[id] = users.size();
  for (const StreamId user : users) queues_[user].waiting.push_back(id);
}

void CachingAllocator::record_use(BlockId id, StreamId stream) {
  EXPECTS(id.index < blocks_.size() && at(id).state == BlockState::allocated);
  if (stream == pools_[at(id).pool].stream) return;
  std::vector<StreamId>& users = users_[id];
  if (std::ranges::find(users, stream) == users.end()) users.push_back(stream);
  at(id).is_used_elsewhere = true;
}

void CachingAllocator::reach(StreamId stream) {
  const auto queue = queues_.find(stream);
  if (queue == queues_.end()) return;
  queue->second.reached = queue->second.waiting.size();
  is_anything_reached_ = true;
}

/// What waited for streams that have come is free.
void CachingAllocator::take_back_reached() {
  is_anything_reached_ = false;
  for (auto& [stream, queue] : queues_) {
    for (; queue.reached > 0; --queue.reached) {
      const BlockId id = queue.waiting.front();
      queue.waiting.pop_front();
      if (--waits_[id] > 0) continue;
      waits_.erase(id);
      reclaim(id);
    }
  }
}

/// A block that nobody uses any more becomes free.
void CachingAllocator::reclaim(BlockId id) {
  log(AllocatorAction::free_completed, at(id), at(id).offset, at(id).requested);
  requested_ -= at(id).requested;
  const auto give = [&](BlockId each) {
    active_ -= at(each).size;
    at(each).state = BlockState::free;
    settle(each);
  };
  if (at(id).has_pieces) {
    const std::vector<BlockId> pieces = std::move(pieces_[id]);
    pieces_.erase(id);
    at(id).has_pieces = false;
    for (const BlockId piece : pieces) give(piece);
  }
  give(id);
}

void CachingAllocator::lift_capacity() {
  capacity_.reset();
  allowed_.reset();
}

std::optional<Bytes> CachingAllocator::limit() const {
  return allowed_ ? std::min(*allowed_, *capacity_) : capacity_;
}

AllocatorBytes CachingAllocator::bytes() const {
  Bytes largest;
  for (const Pool& pool : pools_) {
    if (!pool.fitting.empty()) largest = std::max(largest, pool.fitting.largest().size);
  }
  return {requested_, allocated_, active_, reserved_, inactive_split_, largest};
}

Bytes CachingAllocator::rounded(Bytes size) const {
  if (size < rounding) return rounding;
  const auto bits = static_cast<std::uint64_t>(size.count);
  const int power = static_cast<int>(std::bit_width(bits)) - 1;
  const auto index = static_cast<std::size_t>(std::clamp(power - 20, 0, 15));  // 1 MiB is 2^20
  const std::uint32_t divisions = settings_.roundup[index];
  Bytes taken = round_up(size, rounding);
  if (divisions > 1 && size > divisions * rounding) {
    taken = std::has_single_bit(bits) ? size : round_up(size, {(std::int64_t{1} << power) / divisions});
  }
  const bool in_pages = settings_.segments == Segments::stitched && taken > small_limit;
  return in_pages ? round_up(taken, own_segment_rounding) : taken;
}

BlockView CachingAllocator::operator[](BlockId id) const {
  const Block& block = at(id);
  const Pool& pool = pools_[block.pool];
  return {pool.stream, pool.small, block.segment, block.offset, block.size, block.state, block.requested};
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

bool CachingAllocator::splits_off(bool small, Bytes size, Bytes remainder) const {
  if (small || settings_.segments != Segments::native) return remainder >= rounding;
  return remainder > small_limit && (!settings_.max_split || size < *settings_.max_split);
}

void CachingAllocator::log(AllocatorAction action, const Block& block, Bytes offset, Bytes size) {
  if (log_ == nullptr) return;
  const Pool& pool = pools_[block.pool];
  log_->push_back({action, pool.stream, pool.small, block.segment, offset, size});
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
  Block& block = at(id);
  Pool& pool = pools_[block.pool];
  if (block.state == BlockState::free) {
    block.listed_at = large_searches_;
    pool.fitting.insert(entry(id, block));
    if (settings_.segments != Segments::expandable && !is_whole(id)) inactive_split_ += block.size;
  }
  if (block.state == BlockState::unmapped) pool.unmapped.emplace(block.offset, id);
}

void CachingAllocator::unlist(BlockId id) {
  const Block& block = at(id);
  Pool& pool = pools_[block.pool];
  if (block.state == BlockState::free) {
    pool.fitting.erase(entry(id, block));
    if (settings_.segments != Segments::expandable && !is_whole(id)) inactive_split_ -= block.size;
  }
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

/// An unlisted block, of which what the request does not need is split off, becomes allocated.
void CachingAllocator::hand_out(BlockId id, Bytes size, Bytes requested) {
  Bytes taken;
  if (at(id).has_pieces) {
    for (const BlockId piece : pieces_[id]) taken += at(piece).size;
  } else if (splits_off(pools_[at(id).pool].small, size, at(id).size - size)) {
    list(split(id, size));
  }
  taken += at(id).size;
  at(id).state = BlockState::allocated;
  at(id).requested = requested;
  requested_ += requested;
  allocated_ += taken;
  active_ += taken;
  log(AllocatorAction::alloc, at(id), at(id).offset, requested);
}

}  // namespace plimsoll
