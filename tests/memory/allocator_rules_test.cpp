// The caching allocator's rules one by one, each as PyTorch 2.6 has it (c10/cuda/CUDACachingAllocator.cpp).

#include <catch2/catch.hpp>
#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/core/expects.h"
#include "sim/memory/caching_allocator.h"
#include "tests/memory/requests.h"

using namespace plimsoll;
using namespace plimsoll::test;

namespace {

Bytes rounded(const RoundupDivisions& roundup, std::int64_t bytes) {
  return CachingAllocator({.roundup = roundup}).rounded({bytes});
}

RoundupDivisions all(std::uint32_t divisions) {
  RoundupDivisions roundup;
  roundup.fill(divisions);
  return roundup;
}

/// `count` blocks of the size are taken, and all freed.
void warm_up(CachingAllocator& allocator, int count, std::int64_t bytes) {
  std::vector<BlockId> blocks;
  for (int i = 0; i < count; ++i) blocks.push_back(take(allocator, bytes));
  for (const BlockId block : blocks) allocator.free(block);
}

}  // namespace

TEST_CASE("eight blocks of 16 MiB, freed, and then four of 32 MiB take 256 MiB native and 140 expandable", "[memory]") {
  // Native: 8 x 16, none of which is large enough, and 4 x 32. Expandable: 128 MiB in pages of 20 are 140.
  for (const auto& [segments, reserved] : {std::pair{Segments::native, 256}, std::pair{Segments::expandable, 140}}) {
    CachingAllocator allocator({segments});
    warm_up(allocator, 8, 16 * MiB);
    warm_up(allocator, 4, 32 * MiB);
    CHECK(allocator.reserved() == Bytes{reserved * MiB});
  }
}

TEST_CASE("the same in the other order takes 128 MiB native and 140 expandable", "[memory]") {
  for (const auto& [segments, reserved] : {std::pair{Segments::native, 128}, std::pair{Segments::expandable, 140}}) {
    CachingAllocator allocator({segments});
    warm_up(allocator, 4, 32 * MiB);
    warm_up(allocator, 8, 16 * MiB);
    CHECK(allocator.reserved() == Bytes{reserved * MiB});
  }
}

TEST_CASE("sizes are rounded to steps between powers of two where that is set", "[memory]") {
  SECTION("without divisions, or one, to 512 bytes") {
    CHECK(rounded({}, 1) == Bytes{512});
    CHECK(rounded({}, 1025) == Bytes{1536});
    CHECK(rounded(all(1), 1025) == Bytes{1536});
  }
  SECTION("with four: 1200 MiB, between 1024 and 2048, to 1280") {
    CHECK(rounded(all(4), 1200 * MiB) == Bytes{1280 * MiB});
    CHECK(rounded(all(4), 1280 * MiB) == Bytes{1280 * MiB});
    CHECK(rounded(all(4), 1280 * MiB + 1) == Bytes{1536 * MiB});
  }
  SECTION("powers of two stay, up to 512 bytes x divisions it is 512 bytes") {
    CHECK(rounded(all(4), 4096) == Bytes{4096});
    CHECK(rounded(all(4), 2048) == Bytes{2048});
    CHECK(rounded(all(4), 1537) == Bytes{2048});
    CHECK(rounded(all(4), 2049) == Bytes{2560});
    CHECK(rounded(all(8), 2049) == Bytes{2560});  // below 4096: by 512
    CHECK(rounded(all(8), 100) == Bytes{512});
  }
  SECTION("by the power of two: 1 MiB and below, ..., 32 GiB and above") {
    RoundupDivisions roundup{};
    roundup[0] = 2;
    roundup[1] = 4;
    roundup[15] = 8;
    CHECK(rounded(roundup, 768 * KiB + 1) == Bytes{1 * MiB});
    CHECK(rounded(roundup, 2 * MiB - 1) == Bytes{2 * MiB});
    CHECK(rounded(roundup, 2 * MiB + 1) == Bytes{2560 * KiB});
    CHECK(rounded(roundup, 4 * MiB + 1) == Bytes{4 * MiB + 512});
    CHECK(rounded(roundup, 40 * GiB + 1) == Bytes{44 * GiB});
    CHECK(rounded(roundup, 80 * GiB + 1) == Bytes{88 * GiB});
  }
  SECTION("the rounded size chooses the pool") {
    CachingAllocator allocator({.roundup = all(2)});
    take(allocator, MiB - 512 * KiB + 1);  // 768 KiB
    CHECK(allocator.reserved() == Bytes{2 * MiB});
    CHECK(allocator.allocated() == Bytes{768 * KiB});
    CHECK(allocator.requested() == Bytes{512 * KiB + 1});
  }
}

TEST_CASE("free blocks from max_split on are not split, and serve no smaller request", "[memory]") {
  CachingAllocator allocator({.max_split = Bytes{100 * MiB}});
  allocator.free(take(allocator, 200 * MiB));
  SECTION("a smaller request gets a segment of its own") {
    take(allocator, 50 * MiB);
    CHECK(allocator.reserved() == Bytes{250 * MiB});
  }
  SECTION("one of max_split or more gets the block whole, if that is less than 20 MiB too large") {
    take(allocator, 180 * MiB + 512);
    CHECK(allocator.reserved() == Bytes{200 * MiB});
    CHECK(allocator.allocated() == Bytes{200 * MiB});
  }
  SECTION("20 MiB too large is too large, and no other block is looked at") {
    take(allocator, 180 * MiB);
    CHECK(allocator.reserved() == Bytes{380 * MiB});
  }
  SECTION("blocks below max_split are split as ever") {
    allocator.free(take(allocator, 90 * MiB));
    take(allocator, 30 * MiB);
    CHECK(allocator.reserved() == Bytes{290 * MiB});
    CHECK(allocator.allocated() == Bytes{30 * MiB});
    CHECK(allocator.bytes().inactive_split == Bytes{60 * MiB});
  }
}

TEST_CASE("at the capacity, free blocks of max_split and more go back before all others do", "[memory]") {
  SECTION("the smallest that is large enough for the request goes alone") {
    CachingAllocator allocator({.max_split = Bytes{100 * MiB}}, Bytes{500 * MiB});
    const BlockId large = take(allocator, 250 * MiB), larger = take(allocator, 200 * MiB);
    allocator.free(large);
    allocator.free(larger);
    take(allocator, 90 * MiB);  // 450 + 90 > 500; 200 goes, 250 stays
    CHECK(allocator.reserved() == Bytes{340 * MiB});
    CHECK(allocator.retries() == 0);
  }
  SECTION("else the largest ones, until they are enough") {
    CachingAllocator allocator({.max_split = Bytes{100 * MiB}}, Bytes{400 * MiB});
    const std::vector<BlockId> blocks{take(allocator, 110 * MiB), take(allocator, 130 * MiB),
                                      take(allocator, 120 * MiB)};
    for (const BlockId block : blocks) allocator.free(block);
    take(allocator, 200 * MiB);  // 130 and 120 go, 110 stays
    CHECK(allocator.reserved() == Bytes{310 * MiB});
    CHECK(allocator.retries() == 0);
  }
  SECTION("where they are not enough, everything goes") {
    CachingAllocator allocator({.max_split = Bytes{100 * MiB}}, Bytes{400 * MiB});
    const std::vector<BlockId> blocks{take(allocator, 110 * MiB), take(allocator, 90 * MiB), take(allocator, 90 * MiB),
                                      take(allocator, 90 * MiB)};
    for (const BlockId block : blocks) allocator.free(block);
    take(allocator, 210 * MiB);
    CHECK(allocator.reserved() == Bytes{210 * MiB});
    CHECK(allocator.retries() == 1);
  }
}

TEST_CASE("a fraction of the capacity limits whole segments, whatever of them is asked for", "[memory]") {
  CachingAllocator half({.fraction = 0.5}, Bytes{100 * MiB});
  CHECK(half.limit() == Bytes{50 * MiB});
  take(half, 40 * MiB);
  CHECK(!half.allocate({2 * MiB}, main_stream));  // a segment of 20
  take(half, 512);                                // one of 2
  CachingAllocator expandable({.segments = Segments::expandable, .fraction = 0.5}, Bytes{100 * MiB});
  take(expandable, 40 * MiB);
  CHECK(!expandable.allocate({2 * MiB}, main_stream));  // the 20 that a native segment would take count
}

TEST_CASE("garbage is collected above the threshold: segments that are free for longer than the mean", "[memory]") {
  // 800 MiB allowed, threshold 400.
  CachingAllocator allocator({.gc_threshold = 0.5, .fraction = 0.8}, Bytes{1000 * MiB});
  const BlockId a = take(allocator, 100 * MiB), b = take(allocator, 110 * MiB), c = take(allocator, 120 * MiB);
  allocator.free(a);  // freed after 3 searches
  take(allocator, 130 * MiB);
  allocator.free(b);  // after 4
  allocator.free(c);  // after 4
  CHECK(allocator.reserved() == Bytes{460 * MiB});
  SECTION("a request that a free block serves collects nothing") {
    take(allocator, 105 * MiB);
    CHECK(allocator.reserved() == Bytes{460 * MiB});
  }
  SECTION("ages 2, 1, 1: the mean is 4 / 3, the first goes, and that is enough") {
    take(allocator, 140 * MiB);
    CHECK(allocator.reserved() == Bytes{500 * MiB});
  }
  SECTION("where it is not, those older than the mean of the rest go too, more than are needed") {
    take(allocator, 150 * MiB);  // 460: 100 goes; 510
    take(allocator, 160 * MiB);  // 510: ages 2 and 2, both go; 280 + 160
    CHECK(allocator.reserved() == Bytes{440 * MiB});
  }
  SECTION("not after the limit is lifted") {
    allocator.lift_capacity();
    take(allocator, 140 * MiB);
    CHECK(allocator.reserved() == Bytes{600 * MiB});
  }
}

TEST_CASE("garbage collection leaves split segments, small pools and what is below the threshold alone", "[memory]") {
  CachingAllocator allocator({.gc_threshold = 0.5, .fraction = 1.0}, Bytes{100 * MiB});
  const BlockId half = take(allocator, 5 * MiB);
  take(allocator, 5 * MiB);
  allocator.free(half);
  allocator.free(take(allocator, KiB));
  allocator.free(take(allocator, 28 * MiB));
  CHECK(allocator.reserved() == Bytes{50 * MiB});
  take(allocator, 30 * MiB);  // 50 is not above 50
  CHECK(allocator.reserved() == Bytes{80 * MiB});
  take(allocator, 30 * MiB);  // 80 is: the 28 go, not the half segment of 20, nor the 2 of the small pool
  CHECK(allocator.reserved() == Bytes{82 * MiB});
}

TEST_CASE("a block that another stream used is active until that stream is done, and free at the next request",
          "[memory]") {
  CachingAllocator allocator({});
  const BlockId block = take(allocator, 20 * MiB);
  allocator.record_use(block, side_stream);
  allocator.record_use(block, side_stream);  // once is enough
  allocator.record_use(block, main_stream);  // its own does not count
  allocator.free(block);
  CHECK(allocator[block].state == BlockState::pending);
  CHECK(allocator.allocated() == Bytes{0});
  CHECK(allocator.active() == Bytes{20 * MiB});
  CHECK(allocator.requested() == Bytes{20 * MiB});
  SECTION("until then requests get other memory") {
    take(allocator, 20 * MiB);
    CHECK(allocator.reserved() == Bytes{40 * MiB});
  }
  SECTION("the stream's arrival alone changes nothing") {
    allocator.reach(side_stream);
    CHECK(allocator.active() == Bytes{20 * MiB});
    take(allocator, 20 * MiB);
    CHECK(allocator.reserved() == Bytes{20 * MiB});
    CHECK(allocator.active() == Bytes{20 * MiB});
  }
  SECTION("another stream's arrival does not count") {
    allocator.reach(other_stream);
    take(allocator, 20 * MiB);
    CHECK(allocator.reserved() == Bytes{40 * MiB});
  }
}

TEST_CASE("a block that two streams used waits for both; one stream's blocks come free in order", "[memory]") {
  CachingAllocator allocator({});
  const BlockId both = take(allocator, 20 * MiB), late = take(allocator, 30 * MiB);
  allocator.record_use(both, side_stream);
  allocator.record_use(both, other_stream);
  allocator.free(both);
  allocator.reach(side_stream);
  take(allocator, KiB);
  CHECK(allocator.active() == Bytes{50 * MiB + KiB});
  allocator.record_use(late, side_stream);
  allocator.free(late);  // after the stream's arrival
  allocator.reach(other_stream);
  take(allocator, KiB);
  CHECK(allocator.active() == Bytes{30 * MiB + 2 * KiB});
  allocator.reach(side_stream);
  take(allocator, KiB);
  CHECK(allocator.active() == Bytes{3 * KiB});
}

TEST_CASE("pending blocks do not merge, and at the capacity the allocator waits for their streams", "[memory]") {
  CachingAllocator allocator({}, Bytes{20 * MiB});
  const BlockId first = take(allocator, 4 * MiB), second = take(allocator, 16 * MiB);
  allocator.record_use(first, side_stream);
  allocator.free(first);
  allocator.free(second);
  CHECK(allocator.bytes().largest_free == Bytes{16 * MiB});
  take(allocator, 20 * MiB, other_stream);  // all must go back first
  CHECK(allocator.retries() == 1);
  CHECK(allocator.reserved() == Bytes{20 * MiB});
  CHECK(allocator.active() == Bytes{20 * MiB});
}

TEST_CASE("an expandable segment does not grow through a pending block", "[memory]") {
  CachingAllocator allocator({Segments::expandable});
  const BlockId first = take(allocator, 20 * MiB);
  const BlockId second = take(allocator, 20 * MiB);
  allocator.record_use(second, side_stream);
  allocator.free(first);
  allocator.free(second);
  CHECK(allocator[take(allocator, 30 * MiB)].offset == Bytes{40 * MiB});
}

TEST_CASE("stitching joins free blocks of several segments, and adds what is missing", "[memory]") {
  CachingSettings settings{.segments = Segments::stitched, .fragment_limit = Bytes{32 * MiB}};
  SECTION("8 x 16 and then 4 x 32 MiB need nothing more") {
    CachingAllocator allocator(settings);
    warm_up(allocator, 8, 16 * MiB);
    CHECK(allocator.reserved() == Bytes{128 * MiB});
    warm_up(allocator, 4, 32 * MiB);
    CHECK(allocator.reserved() == Bytes{128 * MiB});
    CHECK(allocator.active() == Bytes{0});
    CHECK(allocator.bytes().largest_free == Bytes{16 * MiB});  // each piece is free for itself again
  }
  SECTION("a request below the limit gets memory of its own") {
    CachingAllocator allocator(settings);
    warm_up(allocator, 2, 16 * MiB);
    take(allocator, 30 * MiB);
    CHECK(allocator.reserved() == Bytes{62 * MiB});
  }
  SECTION("50 MiB of 2 x 16 take 18 more, 20 take 16 and 4 of the other") {
    CachingAllocator allocator(settings);
    warm_up(allocator, 2, 16 * MiB);
    const BlockId block = take(allocator, 50 * MiB);
    CHECK(allocator.reserved() == Bytes{50 * MiB});
    CHECK(allocator.allocated() == Bytes{50 * MiB});
    allocator.free(block);
    take(allocator, 34 * MiB);  // 18 and 16
    CHECK(allocator.bytes().largest_free == Bytes{16 * MiB});
    CHECK(allocator.reserved() == Bytes{50 * MiB});
  }
  SECTION("the last piece is split by pages of 2 MiB, to which large requests are rounded") {
    CachingAllocator allocator(settings);
    warm_up(allocator, 2, 20 * MiB);
    take(allocator, 33 * MiB);  // 34: 20 and 14
    CHECK(allocator.allocated() == Bytes{34 * MiB});
    CHECK(allocator.bytes().largest_free == Bytes{6 * MiB});
    CHECK(allocator.bytes().inactive_split == Bytes{6 * MiB});
  }
  SECTION("late: only where there is no new memory") {
    settings.stitch_late = true;
    CachingAllocator allocator(settings, Bytes{100 * MiB});
    warm_up(allocator, 2, 16 * MiB);
    const BlockId own = take(allocator, 32 * MiB);
    CHECK(allocator.reserved() == Bytes{64 * MiB});
    take(allocator, 32 * MiB);
    CHECK(allocator.reserved() == Bytes{96 * MiB});
    take(allocator, 32 * MiB);  // 16 + 16
    CHECK(allocator.reserved() == Bytes{96 * MiB});
    CHECK(allocator.retries() == 0);
    allocator.free(own);
    CHECK(allocator.active() == Bytes{64 * MiB});
  }
  SECTION("a stitched block that another stream used waits as a whole") {
    CachingAllocator allocator(settings);
    warm_up(allocator, 2, 16 * MiB);
    const BlockId block = take(allocator, 32 * MiB);
    allocator.record_use(block, side_stream);
    allocator.free(block);
    CHECK(allocator.active() == Bytes{32 * MiB});
    allocator.reach(side_stream);
    take(allocator, KiB);
    CHECK(allocator.active() == Bytes{KiB});
  }
}

TEST_CASE("settings that do not go together are refused with the reason", "[memory]") {
  CHECK(trouble_with({}).empty());
  CHECK(trouble_with({.segments = Segments::expandable, .max_split = Bytes{100 * MiB}})
            .starts_with("max_split does not go with expandable segments"));
  CHECK(trouble_with({.max_split = Bytes{20 * MiB}}) ==
        "max_split must be more than 20 MiB, the size of a shared segment");
  CHECK(trouble_with({.gc_threshold = 0.5}).starts_with("gc needs a fraction"));
  CHECK(trouble_with({.segments = Segments::expandable, .gc_threshold = 0.5, .fraction = 1.0})
            .starts_with("gc needs native segments"));
  CHECK(trouble_with({.gc_threshold = 1, .fraction = 1.0}) == "gc must be at least 0 and below 1");
  CHECK(trouble_with({.fraction = 0.0}) == "fraction must be above 0 and at most 1");
  CHECK(trouble_with({.roundup = all(3)}) == "roundup must be powers of two");
  CHECK(trouble_with({.segments = Segments::stitched, .fragment_limit = Bytes{MiB}}).starts_with("fragment_limit"));
  CHECK_THROWS_AS(CachingAllocator({.segments = Segments::expandable, .max_split = Bytes{100 * MiB}}), BrokenPromise);
}

TEST_CASE("cuBLAS keeps 32 MiB on Hopper and 8519680 bytes elsewhere", "[memory]") {
  CHECK(cublas_workspace_bytes("NVIDIA H200") == Bytes{33554432});
  CHECK(cublas_workspace_bytes("NVIDIA A100-SXM4-80GB") == Bytes{8519680});
}

TEST_CASE("what happened is written down as PyTorch's history has it", "[memory]") {
  std::vector<AllocatorEvent> log;
  CachingAllocator allocator({}, Bytes{30 * MiB});
  allocator.record_into(log);
  const BlockId block = take(allocator, 5 * MiB + 1);
  allocator.free(block);
  CHECK(!allocator.allocate({31 * MiB}, main_stream));
  using enum AllocatorAction;
  const std::vector<std::tuple<AllocatorAction, std::int64_t, std::int64_t>> expected{
      {segment_alloc, 0, 20 * MiB},     {alloc, 0, 5 * MiB + 1},     {free_requested, 0, 5 * MiB + 1},
      {free_completed, 0, 5 * MiB + 1}, {segment_free, 0, 20 * MiB}, {oom, 0, 31 * MiB}};
  std::vector<std::tuple<AllocatorAction, std::int64_t, std::int64_t>> found;
  for (const AllocatorEvent& e : log) found.emplace_back(e.action, e.offset.count, e.size.count);
  CHECK(found == expected);
}
