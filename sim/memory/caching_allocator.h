#pragma once
// Model of PyTorch's CUDA caching allocator: blocks cut from segments that are kept after they become free.
//
// Sizes are rounded up to 512 B. Up to 1 MiB they come from the small pool, else from the large one; each stream has
// its own two pools. A request takes the smallest free block that is large enough (ties: the older segment, then the
// lower address), else new memory: native, a segment of its own; expandable, more pages of the pool's one virtual
// segment, which then merge with the free block before them. What the request does not need is split off as a free
// block if it is large enough. A freed block merges with its free neighbours. New memory that would exceed the capacity
// makes the allocator first give back what is entirely free: native, segments; expandable, pages. If that does not
// help, it is out of memory. Source: the rules of c10/cuda/CUDACachingAllocator.cpp and c10/core/AllocatorConfig.h of
// PyTorch 2.x with default options; expandable segments: pull request pytorch/pytorch#96995.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/core/ids.h"
#include "sim/core/units.h"

namespace plimsoll {

enum class Segments : std::uint8_t { native, expandable };
enum class BlockState : std::uint8_t { allocated, free, unmapped };

using BlockId = Id<struct BlockTag>;

/// A block as others see it; the blocks of one segment follow each other without gap.
struct BlockView {
  StreamId stream;
  bool small = false;  ///< of the small pool
  std::uint32_t segment = 0;
  Bytes offset, size;  ///< within the segment
  BlockState state = BlockState::free;
};

class CachingAllocator {
 public:
  static constexpr Bytes rounding{512};
  static constexpr Bytes small_limit{1 << 20};        ///< the largest request of the small pool
  static constexpr Bytes small_segment{2 << 20};      ///< also the page of its expandable segment
  static constexpr Bytes large_segment{20 << 20};     ///< also the page of the large pool's
  static constexpr Bytes own_segment_from{10 << 20};  ///< from this size on, a request gets a segment of its own size,
  static constexpr Bytes own_segment_rounding{2 << 20};  ///< rounded up to this

  /// Without a capacity it never runs out of memory.
  explicit CachingAllocator(Segments segments, std::optional<Bytes> capacity = {})
      : segments_(segments), capacity_(capacity) {}

  /// A block of at least `size` (above 0) for this stream, or nothing when out of memory. What is free has been given
  /// back by then.
  std::optional<BlockId> allocate(Bytes size, StreamId);

  /// The block is reusable by its stream at once.
  void free(BlockId);

  /// From now on it never runs out of memory.
  void lift_capacity() { capacity_.reset(); }

  Bytes reserved() const { return reserved_; }    ///< taken from the device
  Bytes allocated() const { return allocated_; }  ///< in blocks that are handed out

  BlockView operator[](BlockId) const;

  /// Every block, by pool (in order of first use), segment and offset. Those of an expandable segment end with the
  /// unmapped rest of its address space.
  std::vector<BlockView> blocks() const;

 private:
  struct Block {
    std::uint32_t pool = 0;
    std::uint32_t segment = 0;
    Bytes offset{}, size{};
    BlockState state = BlockState::free;
    std::optional<BlockId> previous{}, next{};  ///< neighbours in the segment
  };

  struct Pool {
    StreamId stream;
    bool small = false;
    std::uint32_t segments = 0;                                            ///< ever made
    std::set<std::tuple<Bytes, std::uint32_t, Bytes, BlockId>> fitting{};  ///< free blocks: size, segment, offset
    std::map<Bytes, BlockId> unmapped{};                                   ///< by offset
  };

  std::uint32_t pool_of(StreamId, bool small);
  Block& at(BlockId id) { return blocks_[id.index]; }
  const Block& at(BlockId id) const { return blocks_[id.index]; }
  bool fits(Bytes more) const { return !capacity_ || reserved_ + more <= *capacity_; }
  static Bytes page(const Pool& pool) { return pool.small ? small_segment : large_segment; }
  Bytes least_remainder(const Pool&) const;

  BlockId new_block(Block);
  void list(BlockId);
  void unlist(BlockId);
  BlockId split(BlockId, Bytes size);
  void join_next(BlockId);
  BlockId settle(BlockId);

  Bytes room(BlockId) const;
  bool has_room(BlockId, Bytes) const;
  std::optional<BlockId> best_fit(const Pool&, Bytes size) const;
  std::optional<BlockId> grow(std::uint32_t pool, Bytes size);
  std::optional<BlockId> new_segment(std::uint32_t pool, Bytes size);
  std::optional<BlockId> extend(std::uint32_t pool, Bytes size);
  std::optional<BlockId> first_room(std::uint32_t pool, Bytes size);
  std::optional<BlockId> map_pages(BlockId, Bytes size);
  void release_cached();
  void unmap_pages(BlockId);

  Segments segments_;
  std::optional<Bytes> capacity_;
  Bytes reserved_, allocated_;
  std::vector<Block> blocks_;
  std::vector<BlockId> spare_;  ///< places in blocks_ to use again
  std::vector<Pool> pools_;
  std::map<std::pair<StreamId, bool>, std::uint32_t> pool_by_;
};

}  // namespace plimsoll
