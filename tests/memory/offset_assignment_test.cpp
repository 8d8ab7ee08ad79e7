#include "sim/memory/offset_assignment.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

#include "tests/generate/random.h"
#include "tests/random_case.h"

using namespace plimsoll;

namespace {

Lifetime lifetime(std::int64_t size, std::uint32_t begin, std::uint32_t end) {
  return {{size}, begin, end};
}

/// Whether no two buffers that live at once overlap, and the size is the largest end.
bool is_sound(const std::vector<Lifetime>& lifetimes, const OffsetPlan& plan) {
  Bytes end;
  for (std::size_t a = 0; a < lifetimes.size(); ++a) {
    if (plan.offsets[a] < Bytes{0}) return false;
    if (lifetimes[a].begin < lifetimes[a].end) end = std::max(end, plan.offsets[a] + lifetimes[a].size);
    for (std::size_t b = 0; b < a; ++b) {
      const bool at_once =
          std::max(lifetimes[a].begin, lifetimes[b].begin) < std::min(lifetimes[a].end, lifetimes[b].end);
      const bool overlap = plan.offsets[a] < plan.offsets[b] + lifetimes[b].size &&
                           plan.offsets[b] < plan.offsets[a] + lifetimes[a].size;
      if (at_once && overlap) return false;
    }
  }
  return end == plan.size;
}

/// The smallest size, by trying every vector of offsets for each size from the load up to one that is known to do: for
/// tiny sizes.
std::int64_t smallest_by_all_offsets(const std::vector<Lifetime>& lifetimes, std::int64_t load, std::int64_t enough) {
  for (std::int64_t size = load; size < enough; ++size) {
    std::vector<Bytes> offsets(lifetimes.size());
    const auto places = [&](auto&& self, std::size_t b) -> bool {
      if (b == lifetimes.size()) return true;
      for (std::int64_t o = 0; o + lifetimes[b].size.count <= size; ++o) {
        bool is_free = true;
        for (std::size_t a = 0; a < b; ++a) {
          is_free &= lifetimes[a].end <= lifetimes[b].begin || lifetimes[b].end <= lifetimes[a].begin ||
                     offsets[a].count >= o + lifetimes[b].size.count || o >= offsets[a].count + lifetimes[a].size.count;
        }
        offsets[b] = Bytes{o};
        if (is_free && self(self, b + 1)) return true;
      }
      return false;
    };
    if (places(places, 0)) return size;
  }
  return enough;
}

std::vector<Lifetime> random_lifetimes(Random& random, std::size_t count, std::uint32_t largest, std::uint32_t dates) {
  std::vector<Lifetime> lifetimes;
  for (std::size_t b = 0; b < count; ++b) {
    const std::uint32_t begin = random.below(dates);
    lifetimes.push_back(lifetime(random.between(1, largest), begin, begin + random.between(1, dates)));
  }
  return lifetimes;
}

}  // namespace

TEST_CASE("buffers that never live at once share their place", "[memory]") {
  const OffsetPlan plan = assign_offsets(std::vector{lifetime(10, 0, 2), lifetime(10, 2, 4), lifetime(4, 1, 3)});
  CHECK(plan.size == Bytes{14});
  CHECK(plan.load == Bytes{14});
  CHECK(plan.is_optimal);
  CHECK(plan.offsets[0] == plan.offsets[1]);
}

TEST_CASE("nothing takes no memory, and neither do buffers of no size or no time", "[memory]") {
  CHECK(assign_offsets({}).size == Bytes{0});
  const OffsetPlan plan = assign_offsets(std::vector{lifetime(0, 0, 9), lifetime(5, 3, 3), lifetime(7, 0, 9)});
  CHECK(plan.size == Bytes{7});
  CHECK(plan.is_optimal);
}

TEST_CASE("a buffer goes into the smallest gap that it fits", "[memory]") {
  // Eleven buffers, so that orders are not all tried, and no search. In the first gap instead of the smallest they
  // would take 29 bytes, in each of the four orders.
  const std::vector<Lifetime> lifetimes{lifetime(4, 1, 5), lifetime(6, 0, 4), lifetime(5, 2, 5), lifetime(1, 0, 1),
                                        lifetime(6, 4, 5), lifetime(1, 0, 4), lifetime(2, 3, 7), lifetime(6, 2, 4),
                                        lifetime(3, 4, 7), lifetime(3, 4, 8), lifetime(5, 4, 8)};
  const OffsetPlan plan = assign_offsets(lifetimes, {.most_buffers = 0});
  CHECK(is_sound(lifetimes, plan));
  CHECK(plan.load == Bytes{28});
  CHECK(plan.size == Bytes{28});
  CHECK(plan.is_optimal);
}

TEST_CASE("up to ten buffers the plan is as small as one can be", "[memory]") {
  for (const RandomCase seed : random_cases(0, 299)) {
    INFO("seed " << seed);
    Random random(seed);
    const std::vector<Lifetime> lifetimes = random_lifetimes(random, random.between(5, 9), 7, 7);
    const OffsetPlan plan = assign_offsets(lifetimes);
    REQUIRE(is_sound(lifetimes, plan));
    REQUIRE(plan.is_optimal);
    REQUIRE(plan.size.count == smallest_by_all_offsets(lifetimes, plan.load.count, plan.size.count));
  }
}

TEST_CASE("the smallest plan may be larger than the load", "[memory]") {
  const std::vector<Lifetime> lifetimes{lifetime(3, 0, 3), lifetime(2, 2, 5), lifetime(1, 4, 6), lifetime(3, 0, 1),
                                        lifetime(2, 6, 7), lifetime(4, 5, 9), lifetime(3, 3, 4), lifetime(1, 2, 6)};
  const OffsetPlan plan = assign_offsets(lifetimes);
  CHECK(is_sound(lifetimes, plan));
  CHECK(plan.load == Bytes{6});
  CHECK(plan.size == Bytes{7});
  CHECK(plan.is_optimal);
  CHECK(smallest_by_all_offsets(lifetimes, 6, 7) == 7);
}

TEST_CASE("ten buffers are planned optimally where every greedy order fails, and eleven searched", "[memory]") {
  int better = 0;
  for (const RandomCase seed : random_cases(0, 199)) {
    INFO("seed " << seed);
    Random random(seed);
    std::vector<Lifetime> ten = random_lifetimes(random, 10, 20, 6);
    const OffsetPlan exact = assign_offsets(ten);
    REQUIRE(is_sound(ten, exact));
    ten.push_back(lifetime(1, 100, 101));  // an eleventh that bothers nobody
    const OffsetPlan greedy = assign_offsets(ten, {.most_buffers = 0});
    REQUIRE(is_sound(ten, greedy));
    REQUIRE(exact.size <= greedy.size);
    REQUIRE(greedy.size >= greedy.load);
    const OffsetPlan searched = assign_offsets(ten);
    REQUIRE(is_sound(ten, searched));
    CHECK(searched.is_optimal);
    CHECK(searched.size == exact.size);
    better += exact.size < greedy.size ? 1 : 0;
  }
  if (all_cases()) CHECK(better > 0);
}

TEST_CASE("plans of hundreds of buffers are sound, and close to the load", "[memory]") {
  for (const RandomCase seed : random_cases(0, 9)) {
    INFO("seed " << seed);
    Random random(seed);
    const std::vector<Lifetime> lifetimes = random_lifetimes(random, 400, 1000, 50);
    const OffsetPlan plan = assign_offsets(lifetimes);
    REQUIRE(is_sound(lifetimes, plan));
    REQUIRE(plan.size >= plan.load);
    CHECK(plan.size.count <= plan.load.count * 5 / 4);
  }
}
