#include "strategies/placement/auto/placement_front.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/placement/op_dags.h"

namespace plimsoll {
namespace {

constexpr std::size_t many = 1'000'000;

Units units_in(const OpDag& dag, const Machine& machine) {
  return std::get<Units>(units_of(dag, machine));
}

// One op of 4 on the first and 1 on the second, the other one the other way round.
TEST_CASE("all placements on unlike processors are looked at", "[placement]") {
  const OpDag dag = drawn_dag({{4, 1}, {1, 4}}, {});
  const Machine machine = drawn_machine(2, false);
  const PlacementFront front = placement_front(dag, machine, units_in(dag, machine), many, many);
  CHECK(front.is_complete);
  REQUIRE(!front.placements.empty());
  CHECK(front.placements.back().makespan == 1);
  CHECK(front.placements.back().placement.on == std::vector<std::uint32_t>{1, 0});
}

// Ops of 3, 1, 2 and, behind the 1, 5: the 1 goes first, which neither its number nor readiness says; the longest
// path does. On two processors all ends at 6.
TEST_CASE("a front ascends in bytes and descends in time, alike processors under one name", "[placement]") {
  const OpDag dag = drawn_dag({{3, 1, 2, 5}}, {{1, 3, 1}});
  const Machine machine = drawn_machine(2, true);
  const PlacementFront front = placement_front(dag, machine, units_in(dag, machine), many, many);
  REQUIRE(!front.placements.empty());
  CHECK(front.placements.back().makespan == 6);
  CHECK(front.placements.back().placement.on[0] == 0);
  for (std::size_t k = 1; k < front.placements.size(); ++k) {
    CHECK(front.placements[k - 1].bytes < front.placements[k].bytes);
    CHECK(front.placements[k - 1].makespan > front.placements[k].makespan);
  }
  CHECK(placement_front(dag, machine, units_in(dag, machine), 15, many).placements.empty());
}

// The same: nothing that is beaten is found, all that is not is, the shortest first.
TEST_CASE("placements near the best are those that are not beaten", "[placement]") {
  const OpDag dag = drawn_dag({{3, 1, 2, 5}}, {{1, 3, 1}});
  const Machine machine = drawn_machine(2, true);
  const auto found = near_placements(dag, machine, units_in(dag, machine), many, many, many,
                                     [](std::int64_t, Nanoseconds makespan) { return makespan > 7; });
  REQUIRE(found.size() > 1);
  CHECK(found.front().makespan == 6);
  CHECK(std::ranges::is_sorted(found, {}, &NearPlacement::makespan));
  for (const NearPlacement& each : found) {
    CHECK(each.makespan <= 7);
    CHECK(emulate_in_order(dag, machine, each.placement).makespan == each.makespan);
  }
  CHECK(near_placements(dag, machine, units_in(dag, machine), many, many, 1, [](std::int64_t, Nanoseconds) {
          return false;
        }).size() == 1);
}

}  // namespace
}  // namespace plimsoll
