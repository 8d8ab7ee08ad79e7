#include "sim/memory/caching_allocator.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "sim/core/expects.h"
#include "tests/memory/requests.h"

using namespace plimsoll;
using namespace plimsoll::test;

namespace {

/// The places and sizes of the blocks in one state.
std::vector<std::pair<std::int64_t, std::int64_t>> blocks_in(const CachingAllocator& allocator, BlockState state) {
  std::vector<std::pair<std::int64_t, std::int64_t>> places;
  for (const BlockView& block : allocator.blocks()) {
    if (block.state == state) places.emplace_back(block.offset.count, block.size.count);
  }
  return places;
}

using Places = std::vector<std::pair<std::int64_t, std::int64_t>>;

}  // namespace

TEST_CASE("sizes are rounded up to 512 bytes", "[memory]") {
  CachingAllocator allocator({Segments::native});
  take(allocator, 1);    // 512
  take(allocator, 512);  // 512
  take(allocator, 513);  // 1024
  CHECK(allocator.allocated() == Bytes{2048});
  CHECK(allocator.reserved() == Bytes{2 * MiB});
}

TEST_CASE("small requests share segments of 2 MiB, others of 20 MiB, and from 10 MiB on each has its own", "[memory]") {
  CachingAllocator allocator({Segments::native});
  SECTION("1 MiB is small: two fill one segment") {
    take(allocator, MiB);
    take(allocator, MiB);
    CHECK(allocator.reserved() == Bytes{2 * MiB});
    take(allocator, 1);
    CHECK(allocator.reserved() == Bytes{4 * MiB});
  }
  SECTION("a byte more is large: 1 MiB + 512 B from 20 MiB") {
    take(allocator, MiB + 1);
    CHECK(allocator.allocated() == Bytes{MiB + 512});
    CHECK(allocator.reserved() == Bytes{20 * MiB});
  }
  SECTION("a byte less than 10 MiB rounds up to 10 MiB and so gets 10 MiB") {
    take(allocator, 10 * MiB - 1);
    CHECK(allocator.reserved() == Bytes{10 * MiB});
  }
  SECTION("512 bytes less than 10 MiB are cut from 20 MiB, of which 10 MiB + 512 B stay free") {
    take(allocator, 10 * MiB - 512);
    CHECK(allocator.reserved() == Bytes{20 * MiB});
    CHECK(blocks_in(allocator, BlockState::free) == Places{{10 * MiB - 512, 10 * MiB + 512}});
  }
  SECTION("11 MiB get a segment of 12 MiB; what remains is not more than 1 MiB and stays with the block") {
    take(allocator, 11 * MiB);
    CHECK(allocator.reserved() == Bytes{12 * MiB});
    CHECK(allocator.allocated() == Bytes{12 * MiB});
  }
  SECTION("11 MiB - 512 B: the rest of 1 MiB + 512 B is split off") {
    take(allocator, 11 * MiB - 512);
    CHECK(allocator.reserved() == Bytes{12 * MiB});
    CHECK(allocator.allocated() == Bytes{11 * MiB - 512});
  }
}

TEST_CASE("small blocks are split down to 512 bytes, large ones only if more than 1 MiB is left", "[memory]") {
  CachingAllocator allocator({Segments::native});
  SECTION("small") {
    const BlockId block = take(allocator, MiB);
    take(allocator, MiB - 512);
    CHECK(blocks_in(allocator, BlockState::free) == Places{{2 * MiB - 512, 512}});
    allocator.free(block);
    take(allocator, MiB - 512);  // into the hole of 1 MiB; 512 bytes of it remain
    CHECK(blocks_in(allocator, BlockState::free) == Places{{MiB - 512, 512}, {2 * MiB - 512, 512}});
  }
  SECTION("large") {
    const BlockId block = take(allocator, 20 * MiB);
    allocator.free(block);
    take(allocator, 19 * MiB);  // 1 MiB remains: not more than 1 MiB, so the block is handed out whole
    CHECK(allocator.allocated() == Bytes{20 * MiB});
    CHECK(allocator.reserved() == Bytes{20 * MiB});
  }
}

TEST_CASE("a freed block merges with its free neighbours, in every order of freeing", "[memory]") {
  const std::vector<std::vector<std::size_t>> orders{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  for (const auto& order : orders) {
    CachingAllocator allocator({Segments::native});
    const std::vector<BlockId> blocks{take(allocator, 4 * MiB), take(allocator, 6 * MiB), take(allocator, 8 * MiB)};
    for (const std::size_t b : order) allocator.free(blocks[b]);
    CHECK(blocks_in(allocator, BlockState::free) == Places{{0, 20 * MiB}});
    CHECK(allocator.allocated() == Bytes{0});
    CHECK(allocator.reserved() == Bytes{20 * MiB});  // the cache keeps it
    take(allocator, 20 * MiB);
    CHECK(allocator.reserved() == Bytes{20 * MiB});
  }
}

TEST_CASE("the smallest sufficient block is taken, the one with the lowest address if several are", "[memory]") {
  CachingAllocator allocator({Segments::native});
  // One segment of 20 MiB: 4 | 2 | 3 | 2 | 3 | 2 | 4, then the 4, 3, 3 and 4 are freed.
  const BlockId first = take(allocator, 4 * MiB);
  take(allocator, 2 * MiB);
  const BlockId second = take(allocator, 3 * MiB);
  take(allocator, 2 * MiB);
  const BlockId third = take(allocator, 3 * MiB);
  take(allocator, 2 * MiB);
  const BlockId fourth = take(allocator, 4 * MiB);
  CHECK(allocator.reserved() == Bytes{20 * MiB});
  for (const BlockId block : {fourth, third, first, second}) allocator.free(block);
  CHECK(blocks_in(allocator, BlockState::free) ==
        Places{{0, 4 * MiB}, {6 * MiB, 3 * MiB}, {11 * MiB, 3 * MiB}, {16 * MiB, 4 * MiB}});
  CHECK(allocator[take(allocator, 3 * MiB)].offset == Bytes{6 * MiB});   // 3 before 4, the lower of the 3s
  CHECK(allocator[take(allocator, 2 * MiB)].offset == Bytes{11 * MiB});  // handed out whole: 1 MiB would remain
  CHECK(allocator[take(allocator, 2 * MiB)].offset == Bytes{0});         // of 4; 2 MiB are split off
  CHECK(allocator[take(allocator, 2 * MiB)].offset == Bytes{2 * MiB});
  CHECK(allocator.reserved() == Bytes{20 * MiB});
}

TEST_CASE("free memory in pieces serves no request larger than a piece", "[memory]") {
  // Four blocks of 5 MiB fill 20 MiB. With every other one freed 10 MiB are free, yet 6 MiB need a new segment.
  CachingAllocator allocator({Segments::native});
  const std::vector<BlockId> blocks{take(allocator, 5 * MiB), take(allocator, 5 * MiB), take(allocator, 5 * MiB),
                                    take(allocator, 5 * MiB)};
  allocator.free(blocks[0]);
  allocator.free(blocks[2]);
  take(allocator, 6 * MiB);
  CHECK(allocator.reserved() == Bytes{40 * MiB});
  CHECK(allocator.allocated() == Bytes{16 * MiB});
}

TEST_CASE("streams and pools do not share free blocks", "[memory]") {
  CachingAllocator allocator({Segments::native});
  allocator.free(take(allocator, 4 * MiB));
  take(allocator, 4 * MiB, side_stream);
  CHECK(allocator.reserved() == Bytes{40 * MiB});
  take(allocator, KiB);
  CHECK(allocator.reserved() == Bytes{42 * MiB});
  take(allocator, 4 * MiB);
  CHECK(allocator.reserved() == Bytes{42 * MiB});
}

TEST_CASE("at the capacity free segments are given back before a request fails", "[memory]") {
  CachingAllocator allocator({Segments::native}, Bytes{40 * MiB});
  const BlockId freed = take(allocator, 16 * MiB), kept = take(allocator, 16 * MiB);
  allocator.free(freed);
  SECTION("the retry succeeds") {
    take(allocator, 24 * MiB);  // 32 + 24 > 40; without the free 16 it is 16 + 24 = 40
    CHECK(allocator.reserved() == Bytes{40 * MiB});
  }
  SECTION("the retry fails, and that is a value") {
    CHECK(!allocator.allocate({26 * MiB}, main_stream).has_value());  // 16 + 26 > 40
    CHECK(allocator.reserved() == Bytes{16 * MiB});                   // the free segment is gone
    CHECK(allocator.allocated() == Bytes{16 * MiB});
    allocator.lift_capacity();
    take(allocator, 26 * MiB);
    CHECK(allocator.reserved() == Bytes{42 * MiB});
  }
  SECTION("a segment that is partly in use stays") {
    take(allocator, 8 * MiB);  // half of the freed 16
    CHECK(!allocator.allocate({24 * MiB}, main_stream).has_value());
    CHECK(allocator.reserved() == Bytes{32 * MiB});
  }
  SECTION("segments of other streams and pools are given back too") {
    allocator.free(kept);
    take(allocator, 30 * MiB, side_stream);
    CHECK(allocator.reserved() == Bytes{30 * MiB});
  }
}

TEST_CASE("an expandable segment grows by pages and joins the free end before them", "[memory]") {
  CachingAllocator allocator({Segments::expandable});
  SECTION("large: pages of 20 MiB") {
    take(allocator, 12 * MiB);  // [0, 12) of 20
    take(allocator, 12 * MiB);  // [12, 24): 8 are free, one more page
    CHECK(allocator.reserved() == Bytes{40 * MiB});
    CHECK(allocator.allocated() == Bytes{24 * MiB});
    CHECK(blocks_in(allocator, BlockState::free) == Places{{24 * MiB, 16 * MiB}});
    // Native segments of 12 MiB each would do with 24 MiB here.
  }
  SECTION("small: pages of 2 MiB") {
    for (int i = 0; i < 3; ++i) take(allocator, 768 * KiB);  // 2.25 MiB
    CHECK(allocator.reserved() == Bytes{4 * MiB});
    CHECK(blocks_in(allocator, BlockState::free) == Places{{2304 * KiB, 1792 * KiB}});
  }
  SECTION("every remainder from 512 bytes on is split off") {
    take(allocator, 20 * MiB - 512);
    CHECK(allocator.allocated() == Bytes{20 * MiB - 512});
    CHECK(blocks_in(allocator, BlockState::free) == Places{{20 * MiB - 512, 512}});
  }
}

TEST_CASE("growing requests fragment native segments but not an expandable one", "[memory]") {
  // A buffer grows by 10 MiB a time, the old copy freed once the new one exists: 40, 50, 60, ... 100 MiB.
  const auto reserved = [](Segments segments) {
    CachingAllocator allocator({segments});
    std::optional<BlockId> old;
    for (std::int64_t size = 40; size <= 100; size += 10) {
      const BlockId grown = take(allocator, size * MiB);
      if (old) allocator.free(*old);
      old = grown;
    }
    return allocator.reserved();
  };
  // Native: every size needs a segment of its own: 40 + 50 + ... + 100 = 490 MiB.
  CHECK(reserved(Segments::native) == Bytes{490 * MiB});
  // Expandable: 40 at 0; 50 at 40 (100 mapped); 60 at 90 (to 150; 160 mapped), since the hole [0, 40) is too small;
  // 70 in the hole [0, 90); 80 at 70, of what is free up to 160; 90 at 150 (to 240; 240 mapped), since the hole
  // [0, 70) is too small; 100 in the hole [0, 150).
  CHECK(reserved(Segments::expandable) == Bytes{240 * MiB});
}

TEST_CASE("at the capacity an expandable segment gives back the pages that are entirely free", "[memory]") {
  CachingAllocator allocator({Segments::expandable}, Bytes{80 * MiB});
  const BlockId first = take(allocator, 50 * MiB);  // [0, 50)
  take(allocator, 25 * MiB);                        // [50, 75), 80 mapped
  allocator.free(first);
  // 55 MiB fit in no free block; pages [0, 40) are free, [40, 50) stays mapped as a part of a page. After that
  // 40 MiB are mapped and the 5 free ones at the end would need 60 more: 100 > 80.
  CHECK(!allocator.allocate({55 * MiB}, main_stream).has_value());
  CHECK(allocator.reserved() == Bytes{40 * MiB});
  CHECK(blocks_in(allocator, BlockState::free) == Places{{40 * MiB, 10 * MiB}, {75 * MiB, 5 * MiB}});
  // 50 MiB fit in [0, 50): the two pages are mapped again and join the free 10.
  CHECK(allocator[take(allocator, 50 * MiB)].offset == Bytes{0});
  CHECK(allocator.reserved() == Bytes{80 * MiB});
  // A small request needs 2 MiB more, which nobody can give back.
  CHECK(!allocator.allocate({1}, main_stream).has_value());
}

TEST_CASE("the growing end of an expandable segment is filled last", "[memory]") {
  CachingAllocator allocator({Segments::expandable});
  const BlockId first = take(allocator, 18 * MiB);
  take(allocator, 17 * MiB);  // [18, 35), free [35, 40)
  allocator.free(first);      // free [0, 18)
  // The best fit for 4 MiB by size is the end's 5 MiB; but the end can grow, so the hole of 18 MiB is taken.
  CHECK(allocator[take(allocator, 4 * MiB)].offset == Bytes{0});
}

// Measured by others: pytorch/pytorch#193400 and #123548, torch 2.12 on an RX 9070 XT, expandable segments. 64 MiB stay
// (trace: "the 80 MiB mapping"); each cycle allocates 91 and 45.5 MiB and 2 MiB that stay, then frees the two large
// ones. Their figures after the first cycle: 66 MiB allocated, 220 reserved; without max_split_size, whose effect
// starts with the second cycle, and with native segments, "under 500 MiB" throughout.
TEST_CASE("reserved bytes of a published measurement are reproduced", "[memory]") {
  CachingAllocator allocator({Segments::expandable}), native({Segments::native});
  take(allocator, 64 * MiB);
  take(native, 64 * MiB);
  CHECK(allocator.reserved() == Bytes{80 * MiB});
  for (std::int64_t cycle = 0; cycle <= 100; ++cycle) {
    for (CachingAllocator* each : {&allocator, &native}) {
      const BlockId large = take(*each, 91 * MiB), half = take(*each, 91 * MiB / 2);
      take(*each, 2 * MiB);
      each->free(large);
      each->free(half);
      CHECK(each->allocated() == Bytes{(66 + 2 * cycle) * MiB});
      CHECK(each->reserved() < Bytes{500 * MiB});
    }
    if (cycle == 0) CHECK(allocator.reserved() == Bytes{220 * MiB});
  }
}

TEST_CASE("a block is freed once, and an empty request is a broken promise", "[memory]") {
  CachingAllocator allocator({Segments::native});
  const BlockId block = take(allocator, 1);
  allocator.free(block);
  CHECK_THROWS_AS(allocator.free(block), BrokenPromise);
  CHECK_THROWS_AS(allocator.allocate({0}, main_stream), BrokenPromise);
}
