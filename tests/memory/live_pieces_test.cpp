// Offsets of pieces whose parts come and go: by hand, and that no two parts share dates and bytes.

#include "sim/memory/live_pieces.h"

#include <catch2/catch.hpp>

#include <vector>

#include "tests/generate/random.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

constexpr Bytes piece_unit{16};

LivePiece whole(std::int64_t size, std::uint32_t begin, std::uint32_t end) {
  return {{{{Bytes{size}, begin, end}, {}}}};
}

struct PlacedPart {
  Lifetime life;
  Bytes offset;
};

bool collide(const PlacedPart& a, const PlacedPart& b) {
  return a.life.begin < b.life.end && b.life.begin < a.life.end && a.offset < b.offset + b.life.size &&
         b.offset < a.offset + a.life.size;
}

TEST_CASE("where a part is away, others lie between the parts that stay", "[addresses]") {
  const LivePiece value{{{{Bytes{32}, 0, 10}, {}},           // stays
                         {{Bytes{32}, 0, 2}, Bytes{32}},     // goes
                         {{Bytes{32}, 6, 10}, Bytes{32}}}};  // and comes back
  const OffsetPlan plan = assign_pieces(std::vector{value, whole(32, 2, 6), whole(32, 1, 3)}, piece_unit);
  CHECK(plan.load == Bytes{96});
  CHECK(plan.offsets[0] == Bytes{0});
  CHECK(plan.offsets[1] == Bytes{32});
  CHECK(plan.offsets[2] == Bytes{64});
  CHECK(plan.size == Bytes{96});
  CHECK(plan.is_optimal);
}

TEST_CASE("no two parts of pieces share dates and bytes, and no plan is below the load", "[addresses]") {
  std::size_t smaller = 0;
  for (const RandomCase seed : fewer_cases(1, 400)) {
    INFO("seed " << seed);
    Random random(seed);
    std::vector<LivePiece> pieces;
    for (std::uint32_t p = random.between(1, 25); p > 0; --p) {
      LivePiece& piece = pieces.emplace_back();
      Bytes above;
      for (std::uint32_t parts = random.between(1, 4); parts > 0; --parts) {
        const Bytes size{random.between(1, 100)};
        const std::uint32_t begin = random.below(30);
        piece.parts.push_back({{size, begin, begin + random.between(1, 15)}, above});
        if (random.chance(0.3)) piece.parts.push_back({{size, begin + 20, begin + 25}, above});
        above += size;
      }
    }
    const OffsetPlan greedy = assign_pieces(pieces, piece_unit), plan = assign_pieces(pieces, piece_unit, 20);
    CHECK(plan.size <= greedy.size);
    smaller += plan.size < greedy.size ? 1 : 0;
    std::vector<PlacedPart> placed;
    Bytes most;
    for (std::size_t p = 0; p < pieces.size(); ++p) {
      CHECK(plan.offsets[p].count % piece_unit.count == 0);
      for (const LivePiece::Part& part : pieces[p].parts) {
        const PlacedPart next{part.life, plan.offsets[p] + part.above};
        for (const PlacedPart& other : placed) REQUIRE_FALSE(collide(next, other));
        placed.push_back(next);
        most = std::max(most, next.offset + next.life.size);
      }
    }
    CHECK(plan.size == most);
    CHECK(plan.size >= plan.load);
    CHECK(plan.is_optimal == (plan.size == plan.load));
  }
  if (all_cases()) CHECK(smaller > cases_of(std::size_t{165}));
}

}  // namespace
}  // namespace plimsoll
