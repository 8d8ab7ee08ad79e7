#include <array>
#include <catch2/catch.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "sim/memory/caching_allocator.h"
#include "tests/generate/random.h"
#include "tests/memory/naive_allocator.h"
#include "tests/memory/requests.h"
#include "tests/random_case.h"

using namespace plimsoll;
using namespace plimsoll::test;

namespace {

/// Sizes of all classes: up to 1 MiB, 1 to 10 MiB, beyond, and those at the borders.
std::int64_t pick_size(Random& random) {
  constexpr std::array<std::int64_t, 9> borders{1,        512,     513, MiB - 512, MiB, MiB + 1, 10 * MiB - 512,
                                                10 * MiB, 20 * MiB};
  switch (random.below(5)) {
    case 0:
      return borders[random.below(borders.size())];
    case 1:
      return random.between(1, 4096);
    case 2:
      return random.between(1, MiB);
    case 3:
      return random.between(MiB, 10 * MiB);
    default:
      return random.between(10 * MiB, 70 * MiB);
  }
}

/// What must hold of the blocks at any time, judged from the outside.
void check_invariants(const CachingAllocator& allocator, Segments segments) {
  std::map<std::tuple<StreamId, bool, std::uint32_t>, std::vector<BlockView>> by_segment;
  Bytes allocated, mapped;
  for (const BlockView& block : allocator.blocks()) {
    by_segment[{block.stream, block.small, block.segment}].push_back(block);
    if (block.state == BlockState::allocated) allocated += block.size;
    if (block.state != BlockState::unmapped) mapped += block.size;
  }
  REQUIRE(allocated == allocator.allocated());
  REQUIRE(mapped == allocator.reserved());
  for (const auto& [key, blocks] : by_segment) {
    Bytes end;
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      REQUIRE(blocks[b].offset == end);  // they tile the segment: no gap, no overlap
      REQUIRE(blocks[b].size > Bytes{0});
      end += blocks[b].size;
      const bool alike = b > 0 && blocks[b].state == blocks[b - 1].state;
      REQUIRE((!alike || blocks[b].state == BlockState::allocated));  // free neighbours are one block
    }
    const auto small = std::get<bool>(key);
    if (segments == Segments::native) {
      const bool usual = end == (small ? Bytes{2 * MiB} : Bytes{20 * MiB});
      REQUIRE((usual || (!small && end >= Bytes{10 * MiB} && end.count % (2 * MiB) == 0)));
      REQUIRE(blocks.front().state != BlockState::unmapped);
    } else {
      const std::int64_t page = (small ? 2 : 20) * MiB;
      for (const BlockView& block : blocks) {
        if (block.state == BlockState::unmapped)
          REQUIRE((block.offset.count % page == 0 && block.size.count % page == 0));
      }
    }
  }
}

struct Live {
  BlockId block;
  test::NaiveAllocator::Place place;
  std::int64_t bytes;
};

struct Totals {
  std::vector<std::int64_t> reserved;  ///< after each request
  int failures = 0;
};

/// Random requests to the allocator and the naive one; `steps` of them, then everything is freed.
Totals compare(std::uint64_t seed, const CachingSettings& settings, std::int64_t capacity, int steps, bool checks) {
  const Segments segments = settings.segments;
  INFO("seed " << seed << (segments == Segments::native ? ", native" : ", expandable") << ", capacity " << capacity);
  Random random(seed);
  CachingAllocator allocator(settings, Bytes{capacity});
  test::NaiveAllocator naive(settings, capacity);
  std::vector<Live> live;
  std::int64_t live_bytes = 0;
  Totals totals;
  const std::uint32_t streams = random.between(1, 3);
  const auto drop = [&](std::size_t which) {
    allocator.free(live[which].block);
    naive.free(live[which].place);
    live_bytes -= live[which].bytes;
    live[which] = live.back();
    live.pop_back();
  };
  for (int step = 0; step < steps; ++step) {
    if (!live.empty() && random.chance(0.45)) {
      drop(random.below(static_cast<std::uint32_t>(live.size())));
    } else {
      const std::int64_t bytes = pick_size(random);
      const std::uint32_t stream = random.below(streams);
      const std::optional<BlockId> block = allocator.allocate({bytes}, {stream});
      const auto place = naive.allocate(bytes, stream);
      INFO("step " << step << ", " << bytes << " bytes");
      REQUIRE(block.has_value() == place.has_value());
      if (block) {
        const BlockView view = allocator[*block];
        REQUIRE(*place == test::NaiveAllocator::Place{view.stream.index, view.small, view.segment, view.offset.count});
        REQUIRE(view.size >= Bytes{bytes});
        live.push_back({*block, *place, bytes});
        live_bytes += bytes;
      } else {
        ++totals.failures;
        for (int i = 0; i < 4 && !live.empty(); ++i) drop(0);
      }
    }
    REQUIRE(allocator.allocated().count == naive.allocated());
    REQUIRE(allocator.reserved().count == naive.reserved());
    REQUIRE(allocator.allocated().count >= live_bytes);
    REQUIRE(allocator.reserved() >= allocator.allocated());
    REQUIRE(allocator.reserved().count <= capacity);
    if (checks) check_invariants(allocator, segments);
    totals.reserved.push_back(allocator.reserved().count);
  }
  while (!live.empty()) drop(live.size() - 1);
  CHECK(allocator.allocated() == Bytes{0});
  CHECK(naive.allocated() == 0);
  check_invariants(allocator, segments);
  return totals;
}

std::vector<CachingSettings> all_settings() {
  RoundupDivisions four, mixed{};
  four.fill(4);
  mixed[0] = 8;
  mixed[3] = 2;
  mixed[5] = 16;
  return {{Segments::native},
          {Segments::expandable},
          {.max_split = Bytes{32 * MiB}},
          {.max_split = Bytes{21 * MiB}, .fraction = 0.75},
          {.roundup = four},
          {.segments = Segments::expandable, .roundup = mixed, .fraction = 0.5},
          {.gc_threshold = 0.5, .fraction = 0.9},
          {.max_split = Bytes{40 * MiB}, .roundup = mixed, .gc_threshold = 0.3, .fraction = 1.0}};
}

}  // namespace

TEST_CASE("random requests get the same blocks from the allocator and the naive one", "[memory]") {
  int failures = 0;
  for (const RandomCase seed : fewer_cases(0, 35, 5)) {
    const int steps = 10 + static_cast<int>(seed) * 8;
    for (const CachingSettings& settings : all_settings()) {
      for (const std::int64_t capacity : {200 * MiB, 1000 * MiB, 1'000'000 * MiB}) {
        failures += compare(seed, settings, capacity, steps, capacity == 1000 * MiB).failures;
      }
    }
  }
  if (all_cases()) CHECK(failures > cases_of(100));  // the sequences do run out of memory
}

TEST_CASE("the same requests get the same blocks again", "[memory]") {
  for (const Segments segments : {Segments::native, Segments::expandable}) {
    CHECK(compare(7, {segments}, 1000 * MiB, 500, false).reserved ==
          compare(7, {segments}, 1000 * MiB, 500, false).reserved);
  }
}
