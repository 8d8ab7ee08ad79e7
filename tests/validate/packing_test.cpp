#include "validate/networks/packing.h"

#include <catch2/catch.hpp>

#include "tests/generate/random.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

TEST_CASE("blocks that are never alive together share their place, others do not", "[validate]") {
  const std::vector<Temporary> blocks{{Bytes{100}, 0, 1}, {Bytes{50}, 2, 3}, {Bytes{70}, 1, 2}};
  const Packing packing = pack(blocks);
  CHECK(packing.offsets[0] == Bytes{0});
  CHECK(packing.offsets[1] == Bytes{0});
  CHECK(packing.offsets[2] == Bytes{128});  // 100, rounded up to 64 twice
  CHECK(packing.size == Bytes{198});
}

TEST_CASE("no two blocks overlap in place and time", "[validate]") {
  for (const RandomCase seed : random_cases(1, 200)) {
    INFO("seed " << seed);
    Random random(seed);
    std::vector<Temporary> blocks;
    for (std::uint32_t b = 0; b < random.between(1, 20); ++b) {
      const std::size_t first = random.between(0, 9);
      blocks.push_back({Bytes{random.between(0, 500)}, first, first + random.between(0, 4)});
    }
    const Packing packing = pack(blocks);
    for (std::size_t a = 0; a < blocks.size(); ++a) {
      CHECK(packing.offsets[a].count % alignment == 0);
      CHECK(packing.offsets[a] + blocks[a].bytes <= packing.size);
      for (std::size_t b = a + 1; b < blocks.size(); ++b) {
        const bool apart_in_time = blocks[a].last < blocks[b].first || blocks[b].last < blocks[a].first;
        const bool apart = packing.offsets[a] + blocks[a].bytes <= packing.offsets[b] ||
                           packing.offsets[b] + blocks[b].bytes <= packing.offsets[a];
        CHECK((apart_in_time || apart || blocks[a].bytes == Bytes{0} || blocks[b].bytes == Bytes{0}));
      }
    }
  }
}

}  // namespace
}  // namespace plimsoll
