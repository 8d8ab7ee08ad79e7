#pragma once
// Model of PyTorch's CUDA caching allocator: blocks cut from segments that are kept after they become free.
//
// Sizes are rounded up to 512 B, or to steps between powers of two. Up to 1 MiB they come from the small pool, else
// from the large one; each stream has its own two pools. A request takes the smallest free block that is large enough
// (ties: the lower address; newer segments lie higher unless it is said where), else new memory: native, a segment of
// its own; expandable, more pages of the pool's one virtual segment, which then merge with the free block before them;
// stitched, what is missing beside all the pool's free blocks. What the request does not need is split off as a free
// block if it is large enough. A freed block merges with its free neighbours, at once or, where other streams used it,
// at the first request after they are done. New memory that would exceed the capacity makes the allocator first give
// back free memory. If that does not help, it is out of memory. Source: the rules of c10/cuda/CUDACachingAllocator.cpp
// and c10/core/AllocatorConfig.h of PyTorch 2.6; expandable segments: pull request pytorch/pytorch#96995; stitching:
// Guo et al., "GMLake: Efficient and Transparent GPU Memory Defragmentation for Large-scale DNN Training with Virtual
// Memory Stitching", 2024, and its code.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/core/ids.h"
#include "sim/core/units.h"
#include "sim/memory/allocator_settings.h"
#include "sim/memory/free_blocks.h"

namespace plimsoll {

/// `pending`: given back, but other streams may still use it.
enum class BlockState : std::uint8_t { allocated, free, unmapped, pending };

/// A block as others see it; the blocks of one segment follow each other without gap.
struct BlockView {
  StreamId stream;
  bool small = false;  ///< of the small pool
  std::uint32_t segment = 0;
  Bytes offset, size;  ///< within the segment; of a stitched block: its first piece
  BlockState state = BlockState::free;
  Bytes requested{};  ///< what was asked for, where it is allocated or pending
};

/// A segment that is there before the first request.
struct SegmentLayout {
  struct Piece {
    Bytes size, requested{};
    BlockState state = BlockState::free;  ///< free, allocated, or unmapped (of an expandable segment)
  };

  StreamId stream;
  bool small = false;
  std::int64_t address = 0;   ///< below 0 is none
  std::vector<Piece> pieces;  ///< from the address on; no two free ones, nor unmapped ones, follow each other
};

/// What the allocator did, as PyTorch's memory history names it.
enum class AllocatorAction : std::uint8_t {
  alloc,
  free_requested,
  free_completed,
  segment_alloc,
  segment_free,
  segment_map,
  segment_unmap,
  oom
};

/// Of a block: the size that was requested. `oom`: without a place.
struct AllocatorEvent {
  AllocatorAction action;
  StreamId stream;
  bool small = false;
  std::uint32_t segment = 0;
  Bytes offset, size;
};

/// Bytes at one moment.
struct AllocatorBytes {
  Bytes requested;       ///< asked for, of active blocks
  Bytes allocated;       ///< in blocks that are handed out
  Bytes active;          ///< those, and what is pending
  Bytes reserved;        ///< taken from the device
  Bytes inactive_split;  ///< free blocks that are a part of their segment; none of expandable segments
  Bytes largest_free;    ///< of all pools; a request is served by the pool of its stream and size only

  friend bool operator==(const AllocatorBytes&, const AllocatorBytes&) = default;
};

class CachingAllocator {
 public:
  static constexpr Bytes rounding{512};
  static constexpr Bytes small_limit{1 << 20};        ///< the largest request of the small pool
  static constexpr Bytes small_segment{2 << 20};      ///< also the page of its expandable segment
  static constexpr Bytes large_segment{20 << 20};     ///< also the page of the large pool's
  static constexpr Bytes own_segment_from{10 << 20};  ///< from this size on, a request gets a segment of its own size,
  static constexpr Bytes own_segment_rounding{2 << 20};     ///< rounded up to this
  static constexpr Bytes max_non_split_rounding{20 << 20};  ///< what a block of max_split and more may be too large

  /// Without a capacity it never runs out of memory.
  explicit CachingAllocator(const CachingSettings& settings, std::optional<Bytes> capacity = {});

  /// Takes over a segment and what lies in it, before the first request. An expandable allocator takes one a pool. The
  /// blocks of its pieces, in order.
  std::vector<BlockId> adopt(const SegmentLayout&);

  /// A new segment of that pool and size will lie there; several calls: in their order.
  void expect_segment(StreamId, bool small, Bytes size, std::int64_t address);

  /// A block of at least `size` (above 0) for this stream, or nothing when out of memory. What is free has been given
  /// back by then.
  std::optional<BlockId> allocate(Bytes size, StreamId);

  /// The block is used on another stream than its own too (PyTorch's record_stream).
  void record_use(BlockId, StreamId);

  /// The block is reusable by its stream at once, or, where it was used on other streams, once they have come here.
  void free(BlockId);

  /// The stream has done all that was asked of it until now. The next request sees it.
  void reach(StreamId);

  /// All free memory goes back, as at the capacity: PyTorch's empty_cache. Waits for other streams.
  void release_cached();

  /// The segment at this address goes back, if it is there and all of it is free.
  void release_segment_at(std::int64_t address);

  /// From now on it never runs out of memory, and collects no garbage.
  void lift_capacity();

  /// What happens from now on is written there.
  void record_into(std::vector<AllocatorEvent>& log) { log_ = &log; }

  Bytes requested() const { return requested_; }
  Bytes allocated() const { return allocated_; }
  Bytes active() const { return active_; }
  Bytes reserved() const { return reserved_; }
  AllocatorBytes bytes() const;
  /// The least of the capacity and the allowed fraction of it; unset: unlimited.
  std::optional<Bytes> limit() const;
  std::uint32_t retries() const { return retries_; }  ///< requests for which all free memory was given back

  /// What a request of so many bytes takes.
  Bytes rounded(Bytes size) const;

  /// Whether what a request of `size` leaves of a block is split off, rather than handed out along with it.
  bool splits_off(bool small, Bytes size, Bytes remainder) const;

  BlockView operator[](BlockId) const;

  /// Every block, by pool (in order of first use), segment and offset. Those of an expandable segment end with the
  /// unmapped rest of its address space.
  std::vector<BlockView> blocks() const;

 private:
  struct Block {
    std::uint32_t pool = 0;
    std::uint32_t segment = 0;
    std::int64_t base = 0;  ///< address of the segment
    Bytes offset{}, size{};
    Bytes requested{};
    std::uint64_t listed_at = 0;  ///< searches of large pools before it became free
    BlockState state = BlockState::free;
    bool is_used_elsewhere = false, has_pieces = false;
    std::optional<BlockId> previous{}, next{};  ///< neighbours in the segment
  };

  struct Pool {
    StreamId stream;
    bool small = false;
    std::uint32_t segments = 0;  ///< ever made
    FreeBlocks fitting{};
    std::map<Bytes, BlockId> unmapped{};  ///< by offset
  };

  /// Blocks that wait for a stream, in the order in which they were freed.
  struct Queue {
    std::deque<BlockId> waiting;
    std::size_t reached = 0;  ///< how many of them wait no more
  };

  std::uint32_t pool_of(StreamId, bool small);
  Block& at(BlockId id) { return blocks_[id.index]; }
  const Block& at(BlockId id) const { return blocks_[id.index]; }
  bool fits(Bytes more) const { return !capacity_ || reserved_ + more <= *capacity_; }
  bool is_allowed(Bytes more) const { return !allowed_ || reserved_ + more <= *allowed_; }
  static Bytes page(const Pool& pool) { return pool.small ? small_segment : large_segment; }
  void log(AllocatorAction, const Block&, Bytes offset, Bytes size);

  BlockId new_block(Block);
  static FreeBlocks::Entry entry(BlockId id, const Block& block) {
    return {block.size, block.base + block.offset.count, id};
  }
  std::int64_t address_for(const Pool&, Bytes segment);
  void list(BlockId);
  void unlist(BlockId);
  BlockId split(BlockId, Bytes size);
  void join_next(BlockId);
  BlockId settle(BlockId);
  void hand_out(BlockId, Bytes size, Bytes requested);
  void reclaim(BlockId);
  void take_back_reached();

  Bytes room(BlockId) const;
  bool has_room(BlockId, Bytes) const;
  std::optional<BlockId> best_fit(const Pool&, Bytes size) const;
  std::optional<BlockId> stitch(std::uint32_t pool, Bytes size);
  std::optional<BlockId> make_room(std::uint32_t pool, Bytes size);
  std::optional<BlockId> grow(std::uint32_t pool, Bytes size);
  Bytes segment_for(const Pool&, Bytes size) const;
  std::optional<BlockId> new_segment(std::uint32_t pool, Bytes segment);
  std::optional<BlockId> extend(std::uint32_t pool, Bytes size);
  std::optional<BlockId> first_room(std::uint32_t pool, Bytes size);
  std::optional<BlockId> map_pages(BlockId, Bytes size);

  bool is_in_use(BlockId id) const {
    return at(id).state == BlockState::allocated || at(id).state == BlockState::pending;
  }
  bool is_whole(BlockId id) const { return !at(id).previous && !at(id).next; }
  void release_segment(BlockId);
  bool release_oversized(std::uint32_t pool, Bytes size);
  void collect_garbage();
  void unmap_pages(BlockId);

  CachingSettings settings_;
  std::optional<Bytes> capacity_, allowed_;
  Bytes requested_, allocated_, active_, reserved_, inactive_split_;
  std::uint32_t retries_ = 0;
  std::uint64_t large_searches_ = 0;
  std::int64_t next_address_ = 0;  ///< above all segments so far
  std::map<std::tuple<StreamId, bool, Bytes>, std::deque<std::int64_t>> expected_;
  std::vector<Block> blocks_;
  std::vector<BlockId> spare_;  ///< places in blocks_ to use again
  std::vector<Pool> pools_;
  std::map<std::pair<StreamId, bool>, std::uint32_t> pool_by_;
  std::map<BlockId, std::vector<BlockId>> pieces_;  ///< of stitched blocks: all but the first
  std::map<BlockId, std::vector<StreamId>> users_;  ///< other streams that use a block
  std::map<BlockId, std::size_t> waits_;            ///< of pending blocks: how many streams are not here yet
  std::map<StreamId, Queue> queues_;
  bool is_anything_reached_ = false;
  std::vector<AllocatorEvent>* log_ = nullptr;
};

}  // namespace plimsoll
