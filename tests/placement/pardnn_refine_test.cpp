#include "strategies/placement/pardnn/pardnn_refine.h"

#include <catch2/catch.hpp>

#include "strategies/placement/pardnn/pardnn.h"
#include "strategies/placement/pardnn/pardnn_mapping.h"
#include "tests/placement/op_dags.h"
#include "tests/placement/placement_rules.h"

namespace plimsoll {
namespace {

using Places = std::vector<std::uint32_t>;

PardnnMapping drawn_mapping(const OpDag& dag, const Machine& machine, Slices slices, Places on) {
  auto units = units_of(dag, machine);
  REQUIRE(std::holds_alternative<Units>(units));
  return {std::get<Units>(std::move(units)), std::move(slices), std::move(on)};
}

Nanoseconds fifo_makespan(const OpDag& dag, const Machine& machine, const Places& on) {
  return emulate(dag, machine, on, QueueOrder::fifo).makespan;
}

Places critical_moves(const OpDag& dag, const Machine& machine, const Places& on, CriticalMoves which) {
  const PardnnMapping made = drawn_mapping(dag, machine, {}, on);
  return with_critical_moves(dag, machine, made.units, on, emulate(dag, machine, on, QueueOrder::fifo), which);
}

// 0 to 3 to 4 and 1 to 2 to 5, with 2 and 3 each between two of the other processor. Alone neither may go: with 10 and
// 10 in its span the other processor would have 20, and 10 + 2 * 4 is less.
TEST_CASE("paths that lie in each other's processors change places", "[placement]") {
  const OpDag dag = drawn_dag({{1, 1, 10, 10, 1, 1}}, {{0, 3, 4}, {1, 2, 4}, {2, 5, 4}, {3, 4, 4}});
  const Machine machine = drawn_machine(2, true);
  const Places on{0, 1, 0, 1, 0, 1}, swapped{0, 1, 1, 0, 0, 1};
  const PardnnMapping made = drawn_mapping(dag, machine, {{{0, 4}, {1, 5}}, {{2}, {3}}}, on);
  CHECK(with_swapped_paths(dag, machine, made, on) == swapped);
  CHECK(fifo_makespan(dag, machine, on) == 20);
  CHECK(fifo_makespan(dag, machine, swapped) == 12);
  CHECK(refined(dag, machine, made, QueueOrder::fifo) == swapped);
}

// 1 is between 0 and 2, with transfers of 4 either way, and 3 has its time: 1 goes if its 5 and those of 3 are less
// than its 5 and 2 * 4.
TEST_CASE("a path without a partner goes alone where that is less to do", "[placement]") {
  for (const Nanoseconds other : {7, 8}) {
    const OpDag dag = drawn_dag({{1, 5, 1, other}}, {{0, 1, 4}, {1, 2, 4}, {0, 3, 4}});
    const Machine machine = drawn_machine(2, true);
    const Places on{0, 1, 0, 0};
    const PardnnMapping made = drawn_mapping(dag, machine, {{{0, 2}}, {{1}, {3}}}, on);
    CHECK(with_swapped_paths(dag, machine, made, on) == (other == 7 ? Places{0, 0, 0, 0} : on));
  }
}

TEST_CASE("a path of half a group stays", "[placement]") {
  OpDag dag = drawn_dag({{1, 1, 1, 1}}, {{0, 1, 4}, {1, 2, 4}});
  dag.together = {{1, 3}};
  dag.group = {no_node, 0, no_node, 0};
  const Machine machine = drawn_machine(2, true);
  const Places on{0, 1, 0, 1};
  const PardnnMapping made = drawn_mapping(dag, machine, {{{0, 2}}, {{1}, {3}}}, on);
  CHECK(with_swapped_paths(dag, machine, made, on) == on);
  CHECK(with_switched_nodes(dag, machine, made.units, on) == on);
}

// Where its reader is it receives 5 and sends 4; where it is it receives 6 and computes.
TEST_CASE("a node goes to its readers for what that saves", "[placement]") {
  for (const Nanoseconds time : {2, 3}) {
    const OpDag dag = drawn_dag({{1, 1, time, 1}}, {{0, 2, 6}, {1, 2, 5}, {2, 3, 4}});
    const Machine machine = drawn_machine(2, true);
    const Places on{0, 1, 0, 1}, switched{0, 1, 1, 1};
    const PardnnMapping made = drawn_mapping(dag, machine, {}, on);
    CHECK(with_switched_nodes(dag, machine, made.units, on) == (time == 2 ? switched : on));
    CHECK(fifo_makespan(dag, machine, on) == time + 11);
    CHECK(fifo_makespan(dag, machine, switched) == time + 8);
  }
}

TEST_CASE("a node goes to what it waits for if it takes no longer than a latency", "[placement]") {
  for (const Nanoseconds time : {2, 3}) {
    const OpDag dag = drawn_dag({{1, time, 1, 1}}, {{0, 1, 1}, {1, 2, 1}, {1, 3, 1}});
    Machine machine = drawn_machine(2, true);
    machine.latency = {0, 2, 2, 0};
    find_means(machine);
    const Places on{1, 0, 0, 1};
    const PardnnMapping made = drawn_mapping(dag, machine, {}, on);
    CHECK(with_switched_nodes(dag, machine, made.units, on) == (time == 2 ? Places{1, 1, 0, 1} : on));
  }
}

// 0 ends at 1, 1 at 7, 2 at 11. If 1 joins 2, that one ends at 3, 8 earlier; if 0 joins 1, that one ends at 2, 5
// earlier.
TEST_CASE("on the critical path nodes join what waits for them", "[placement]") {
  const OpDag dag = drawn_dag({{1, 1, 1}}, {{0, 1, 5}, {1, 2, 3}});
  const Machine machine = drawn_machine(2, true);
  const Places on{0, 1, 0};
  CHECK(critical_moves(dag, machine, on, CriticalMoves::best) == Places{0, 0, 0});
  CHECK(critical_moves(dag, machine, on, CriticalMoves::all_improving) == Places{1, 0, 0});
  CHECK(refined(dag, machine, drawn_mapping(dag, machine, {}, on), QueueOrder::fifo) == Places{0, 0, 0});
}

// 0 would have to wait for 1, which takes 10: 2 would end at 20, not at 12.
TEST_CASE("on the critical path no node joins a processor that is busy for longer than the transfer takes",
          "[placement]") {
  const OpDag dag = drawn_dag({{9, 10, 1}}, {{0, 2, 2}});
  const Places on{0, 1, 1};
  CHECK(critical_moves(dag, drawn_machine(2, true), on, CriticalMoves::all_improving) == on);
}

// 3 waits for 1, with which it has no edge; 1 waits for 0.
TEST_CASE("the critical path goes over what a processor was busy with", "[placement]") {
  const OpDag dag = drawn_dag({{1, 4, 8, 1}}, {{0, 1, 5}, {2, 3, 0}});
  const Machine machine = drawn_machine(3, true);
  CHECK(critical_moves(dag, machine, {0, 1, 2, 1}, CriticalMoves::best) == Places{1, 1, 2, 1});
}

TEST_CASE("on the critical path a group moves as one", "[placement]") {
  OpDag dag = drawn_dag({{1, 1, 1, 1}}, {{0, 1, 5}, {1, 2, 3}});
  dag.together = {{1, 3}};
  dag.group = {no_node, 0, no_node, 0};
  CHECK(critical_moves(dag, drawn_machine(2, true), {0, 1, 0, 1}, CriticalMoves::best) == Places{0, 0, 0, 0});
}

TEST_CASE("a graph is thin if its work is less than twice its longest path", "[placement]") {
  const Machine machine = drawn_machine(2, true);
  CHECK(is_thin(drawn_dag({{1, 1, 1}}, {{0, 1, 0}, {1, 2, 0}}), machine));
  CHECK_FALSE(is_thin(drawn_dag({{1, 1}}, {}), machine));
  CHECK(is_thin(drawn_dag({{1, 1, 2}}, {{0, 1, 1}}), machine));
}

// 13 is the least that is possible.
TEST_CASE("a refinement leaves the ParDNN paper's figure 2 as it is", "[placement]") {
  const OpDag dag = pardnn_figure();
  const Machine machine = drawn_machine(2, true);
  const Places plain = std::get<Placement>(place_pardnn(dag, machine, {.memory = PardnnMemory::ignored})).on;
  const Places on =
      std::get<Placement>(place_pardnn(dag, machine, {.memory = PardnnMemory::ignored, .refines = true})).on;
  CHECK(on == plain);
  CHECK(fifo_makespan(dag, machine, on) == 13);
}

TEST_CASE("a refinement keeps groups and what processors can run, and never ends later", "[placement]") {
  int faster = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    INFO("seed " << seed);
    const PlacementCase made = random_placement_case(seed, 1 + static_cast<std::uint32_t>(seed % 60));
    for (const QueueOrder order : {QueueOrder::fifo, QueueOrder::b_level}) {
      const auto place = [&](bool refines) {
        return place_pardnn(made.dag, made.machine,
                            {.memory = PardnnMemory::ignored, .refines = refines, .order = order});
      };
      const PlacementOutcome outcome = place(true);
      check_rules(made, outcome);
      const auto makespan = [&](const PlacementOutcome& each) {
        return emulate(made.dag, made.machine, std::get<Placement>(each).on, order).makespan;
      };
      const Nanoseconds plain = makespan(place(false));
      CHECK(makespan(outcome) <= plain);
      faster += makespan(outcome) < plain ? 1 : 0;
    }
    check_rules(made, place_pardnn(made.dag, made.machine, {.refines = true}));
  }
  CHECK(faster > 100);
}

// Each step alone, too.
TEST_CASE("every step of a refinement keeps groups and what processors can run", "[placement]") {
  int swapped = 0, switched = 0, moved = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    INFO("seed " << seed);
    const PlacementCase made = random_placement_case(seed, 1 + static_cast<std::uint32_t>(seed % 60));
    auto units = units_of(made.dag, made.machine);
    PardnnMapping mapping = pardnn_mapping(made.dag, made.machine, std::get<Units>(std::move(units)));
    collocate(made.dag, made.machine, mapping.units, mapping.on);
    const auto changes = [&](const Places& on) {
      check_rules(made, Placement{on, {}});
      return on != mapping.on ? 1 : 0;
    };
    swapped += changes(with_swapped_paths(made.dag, made.machine, mapping, mapping.on));
    switched += changes(with_switched_nodes(made.dag, made.machine, mapping.units, mapping.on));
    const Emulation times = emulate(made.dag, made.machine, mapping.on, QueueOrder::fifo);
    moved += changes(
        with_critical_moves(made.dag, made.machine, mapping.units, mapping.on, times, CriticalMoves::all_improving));
  }
  CHECK(swapped > 30);
  CHECK(switched > 20);
  CHECK(moved > 30);
}

}  // namespace
}  // namespace plimsoll
