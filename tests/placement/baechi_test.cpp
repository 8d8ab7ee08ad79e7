#include "strategies/placement/baechi/baechi.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "strategies/placement/baechi/baechi_fusion.h"
#include "strategies/placement/baechi/baechi_schedule.h"
#include "strategies/placement/emulation.h"
#include "tests/placement/op_dags.h"
#include "tests/placement/placement_rules.h"

namespace plimsoll {
namespace {

using Nodes = std::vector<std::uint32_t>;

std::vector<std::pair<std::uint32_t, std::int64_t>> edges_of(std::span<const DagEdge> row) {
  std::vector<std::pair<std::uint32_t, std::int64_t>> found;
  for (const DagEdge& edge : row) found.emplace_back(edge.node, edge.bytes);
  return found;
}

TEST_CASE("a chain in one group becomes one op, with what it needs at most at once", "[placement]") {
  OpDag dag = drawn_dag({{2, 3, 4}}, {{0, 1, 4}, {1, 2, 6}});
  dag.workspace = {5, 1, 7};
  dag.residents = {{10, {0}}, {20, {1, 2}}};
  const FusedDag made = fused(dag, co_placed(dag, drawn_machine(1, true)));
  CHECK(made.members == std::vector<Nodes>{{0, 1, 2}});
  CHECK(made.dag.time == std::vector<std::vector<Nanoseconds>>{{9}});
  // 5 + 4 in the first, 1 + 4 + 6 in the second, 7 + 6 in the third.
  CHECK(made.dag.workspace == std::vector<std::int64_t>{13});
  CHECK(made.dag.values.empty());
  REQUIRE(made.dag.residents.size() == 2);
  CHECK(made.dag.residents[1].users == Nodes{0});
  CHECK(made.dag.residents[1].bytes == 20);
}

TEST_CASE("ops join their only reader as long as a processor's share of the time allows", "[placement]") {
  const OpDag chain = drawn_dag({{1, 1, 1, 1}}, {{0, 1, 1}, {1, 2, 1}, {2, 3, 1}});
  CHECK(co_placed(chain, drawn_machine(2, true)) == Nodes{0, 0, 2, 2});
  CHECK(co_placed(chain, drawn_machine(4, true)) == Nodes{0, 1, 2, 3});

  OpDag heavy = chain;
  heavy.residents = {{6, {0}}, {6, {1}}};
  Machine small = drawn_machine(1, true);
  small.memory = {11};
  CHECK(co_placed(heavy, small) == Nodes{0, 1, 1, 1});

  const OpDag pinned = drawn_dag({{1, cannot_run, 1}, {cannot_run, 1, cannot_run}}, {{0, 1, 1}, {1, 2, 1}});
  CHECK(co_placed(pinned, drawn_machine(2, false)) == Nodes{0, 1, 2});
}

TEST_CASE("branches that meet are fused with where they meet, and what they read of one op is one edge",
          "[placement]") {
  OpDag dag = drawn_dag({{1, 2, 3, 4}}, {{0, 1, 5}, {0, 2, 6}, {1, 3, 7}, {2, 3, 8}});
  const Nodes group = co_placed(dag, drawn_machine(1, true));
  CHECK(group == Nodes{0, 1, 1, 1});
  const FusedDag made = fused(dag, group);
  CHECK(made.members == std::vector<Nodes>{{0}, {1, 2, 3}});
  CHECK(made.dag.time == std::vector<std::vector<Nanoseconds>>{{1, 9}});
  CHECK(made.dag.workspace == std::vector<std::int64_t>{0, 15});
  CHECK(edges_of(made.dag.out[0]) == std::vector<std::pair<std::uint32_t, std::int64_t>>{{1, 11}});
  CHECK(edges_of(made.dag.in[1]) == std::vector<std::pair<std::uint32_t, std::int64_t>>{{0, 11}});
  CHECK(made.dag.group == Nodes{no_node, no_node});
}

TEST_CASE("ops of a group with another one between them are not fused", "[placement]") {
  const OpDag dag = drawn_dag({{1, 1, 1}}, {{0, 1, 2}, {1, 2, 3}, {0, 2, 4}});
  const FusedDag made = fused(dag, {0, 1, 0});
  CHECK(made.members == std::vector<Nodes>{{0}, {1}, {2}});
  CHECK(made.dag.together == std::vector<Nodes>{{0, 2}});
  CHECK(made.dag.group == Nodes{0, no_node, 0});
}

TEST_CASE("ops are fused only where no circle can be, and again when others have been", "[placement]") {
  const OpDag apart = drawn_dag({{1, 1, 1, 1}}, {{0, 2, 1}, {0, 3, 1}, {1, 2, 1}});
  CHECK(fused(apart, {0, 1, 0, 3}).members == std::vector<Nodes>{{0}, {1}, {2}, {3}});
  // 1 leads to 2 and 3 until these are one.
  const OpDag later = drawn_dag({{1, 1, 1, 1}}, {{0, 2, 1}, {1, 2, 1}, {1, 3, 1}, {2, 3, 1}});
  CHECK(fused(later, {0, 1, 1, 1}).members == std::vector<Nodes>{{0}, {1, 2, 3}});
}

TEST_CASE("a fused op comes where all that it waits for has been", "[placement]") {
  // 1 and 3 are one; 2 must come before it, and is behind 0 alone.
  const OpDag dag = drawn_dag({{1, 1, 1, 1}}, {{0, 1, 1}, {0, 2, 1}, {1, 3, 1}, {2, 3, 9}});
  const FusedDag made = fused(dag, {0, 1, 2, 1});
  CHECK(made.members == std::vector<Nodes>{{0}, {2}, {1, 3}});
  CHECK(edges_of(made.dag.in[2]) == std::vector<std::pair<std::uint32_t, std::int64_t>>{{0, 1}, {1, 9}});
}

TEST_CASE("an edge that only orders stays one", "[placement]") {
  OpDag dag = drawn_dag({{1, 1, 1}}, {{0, 1, 0}, {1, 2, 3}});
  dag.values[0].readers.clear();
  dag.reads[1].clear();
  for (std::vector<DagEdge>* edges : {&dag.out.items, &dag.in.items}) edges->front().sends = false;
  const FusedDag made = fused(dag, co_placed(dag, drawn_machine(1, true)));
  CHECK(made.members == std::vector<Nodes>{{0}, {1, 2}});
  CHECK_FALSE(made.dag.out[0].front().sends);
}

TEST_CASE("transfers of a processor wait for each other, and a value comes once", "[placement]") {
  const OpDag dag = drawn_dag({{2, 3, 1, 1}}, {{0, 2, 4}, {1, 2, 6}, {0, 3, 5}});
  const Machine machine = drawn_machine(3, true);
  Channels channels(dag, machine);
  const Nodes on{0, 0, no_node, no_node};
  channels.made(0, 2);
  channels.made(1, 5);
  // From 2 to 6, then from 6 to 12; asking does not send.
  CHECK(channels.arrival(2, 1, on) == 12);
  CHECK(channels.arrival(2, 1, on) == 12);
  CHECK(channels.arrival(2, 0, on) == 5);
  CHECK(channels.receive(2, 1, on) == Nodes{0, 1});
  CHECK(channels.arrival(2, 1, on) == 12);
  CHECK(channels.arrival(3, 1, on) == 17);
  CHECK(channels.arrival(3, 2, on) == 17);
}

TEST_CASE("what a processor receives waits for what it receives already", "[placement]") {
  const OpDag dag = drawn_dag({{2, 3, 1}}, {{0, 2, 4}, {1, 2, 6}});
  const Machine machine = drawn_machine(3, true);
  Channels channels(dag, machine);
  channels.made(0, 2);
  channels.made(1, 3);
  CHECK(channels.arrival(2, 1, {0, 2, no_node}) == 12);  // from 2 to 6 and from 6 to 12, sent from 3 on
}

TEST_CASE("a value stays until its last reader has ended", "[placement]") {
  // One value of 8 bytes with two readers; workspaces of 7 have room only when both have ended.
  OpDag dag = drawn_dag({{1, 2, 3, 4, 5}}, {{0, 1, 8}, {0, 4, 0}, {1, 2, 0}, {1, 3, 0}});
  dag.values[0].readers = {1, 4};
  dag.reads[4].push_back(0);
  dag.workspace = {0, 0, 7, 7, 0};
  Machine machine = drawn_machine(2, true);
  machine.memory = {14, 0};
  const std::optional<BaechiSchedule> made = baechi_schedule(dag, machine, {});
  REQUIRE(made);
  CHECK(made->made.placement.order[0] == Nodes{0, 1, 4, 2, 3});
  CHECK(made->peak[0] == 8);
}

TEST_CASE("a processor without room for an op leaves it to others, or waits for what is freed", "[placement]") {
  OpDag dag = drawn_dag({{2, 3}}, {{0, 1, 4}});
  dag.residents = {{10, {0}}, {10, {1}}};
  Machine machine = drawn_machine(2, true);
  CHECK(baechi_schedule(dag, machine, {})->made.placement.on == Nodes{0, 0});
  machine.memory = {20, 20};
  const std::optional<BaechiSchedule> apart = baechi_schedule(dag, machine, {});
  REQUIRE(apart);
  CHECK(apart->made.placement.on == Nodes{0, 1});
  CHECK(apart->made.makespan == 9);
  CHECK(apart->peak == std::vector<std::int64_t>{14, 14});
  machine.memory = {20, 13};
  CHECK_FALSE(baechi_schedule(dag, machine, {}));

  // The second op's workspace has room when the first op's has gone.
  OpDag two = drawn_dag({{2, 3}, {2, cannot_run}}, {});
  two.workspace = {6, 6};
  Machine one = drawn_machine(1, true);
  one.memory = {6};
  CHECK(baechi_schedule(two, one, {})->made.makespan == 5);
}

TEST_CASE("the first op of a group brings all its residents", "[placement]") {
  OpDag dag = drawn_dag({{1, 1}}, {});
  dag.together = {{0, 1}};
  dag.group = {0, 0};
  dag.residents = {{6, {0}}, {6, {1}}};
  Machine machine = drawn_machine(2, true);
  machine.memory = {11, 12};
  CHECK(baechi_schedule(dag, machine, {})->made.placement.on == Nodes{1, 1});
}

TEST_CASE("a processor waits for the favourite child of what it ran", "[placement]") {
  // 3 reads 0 and 1, which run at once on two processors; 2 could start where 0 has ended.
  const OpDag dag = drawn_dag({{2, 5, 9, 1}}, {{0, 3, 10}, {1, 3, 1}});
  const Machine machine = drawn_machine(2, true);
  const std::optional<BaechiSchedule> eager = baechi_schedule(dag, machine, {});
  CHECK(eager->made.placement.order == std::vector<Nodes>{{0, 2, 3}, {1}});
  CHECK(eager->made.makespan == 12);
  const Nodes favourite{3, no_node, no_node, no_node};
  const std::optional<BaechiSchedule> awake = baechi_schedule(dag, machine, favourite);
  CHECK(awake->made.placement.order == std::vector<Nodes>{{0, 3}, {1, 2}});
  CHECK(awake->made.makespan == 14);
}

TEST_CASE("a processor does not wait for a child that could start earlier elsewhere", "[placement]") {
  const OpDag dag = drawn_dag({{2, 5, 9, 1}}, {{0, 3, 1}, {1, 3, 10}});
  const Nodes favourite{3, no_node, no_node, no_node};
  const std::optional<BaechiSchedule> made = baechi_schedule(dag, drawn_machine(2, true), favourite);
  CHECK(made->made.placement.order == std::vector<Nodes>{{0, 2}, {1, 3}});
}

TEST_CASE("the program's favourite is on the longest path, the greedy choice is the longest transfer", "[placement]") {
  const OpDag dag = drawn_dag({{1, 1, 10}}, {{0, 1, 5}, {0, 2, 1}});
  const Machine machine = drawn_machine(2, true);
  CHECK(favourites_by_program(dag, machine, 60) == Nodes{2, no_node, no_node});
  CHECK(favourites_by_transfer(dag, machine) == Nodes{1, no_node, no_node});
  CHECK(favourite_children(dag, machine).by_program);
}

// One of three equal readers may be the favourite; the program shares it among them: 2/3 of each transfer remains.
TEST_CASE("an edge that the program sends by two thirds is no favourite", "[placement]") {
  const OpDag dag = drawn_dag({{1, 1, 1, 1}}, {{0, 1, 6}, {0, 2, 6}, {0, 3, 6}});
  CHECK(favourites_by_program(dag, drawn_machine(2, true), 60) == Nodes(4, no_node));
}

TEST_CASE("nothing fits into too little", "[placement]") {
  OpDag dag = drawn_dag({{2, 3}}, {{0, 1, 4}});
  dag.residents = {{10, {0}}, {10, {1}}};
  Machine machine = drawn_machine(2, true);
  for (const std::int64_t memory : {0, 13, 14}) {
    machine.memory = {memory, memory};
    const ListOutcome outcome = baechi_placement(dag, machine, BaechiMethod::etf);
    CHECK(std::holds_alternative<ListSchedule>(outcome) == (memory == 14));
  }
}

TEST_CASE("baechi's placements keep all rules, and their limits by their own account", "[placement]") {
  std::size_t limited = 0, refused = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    INFO("seed " << seed);
    PlacementCase each = random_placement_case(seed, 4 + static_cast<std::uint32_t>(seed % 40));
    const Machine roomy = each.machine;
    for (const BaechiMethod method : {BaechiMethod::etf, BaechiMethod::sct}) {
      each.machine = roomy;
      for (std::int64_t& memory : each.machine.memory) {
        if (seed % 2 == 0) memory = std::min<std::int64_t>(memory, 30 + static_cast<std::int64_t>(seed % 50));
      }
      ListOutcome outcome = baechi_placement(each.dag, each.machine, method);
      if (const Infeasible* none = std::get_if<Infeasible>(&outcome)) {
        ++refused;
        CHECK_FALSE(none->reason.empty());
        continue;
      }
      if (seed % 2 == 0) ++limited;
      REQUIRE(std::holds_alternative<ListSchedule>(outcome));
      Placement placement = std::get<ListSchedule>(std::move(outcome)).placement;
      const Emulation emulated = emulate_in_order(each.dag, each.machine, placement);
      CHECK(emulated.order == placement.order);
      placement.order.clear();
      check_rules(each, placement);
    }
    const std::optional<BaechiSchedule> schedule = baechi_schedule(each.dag, each.machine, {});
    for (std::size_t p = 0; schedule && p < schedule->peak.size(); ++p) {
      CHECK(schedule->peak[p] <= each.machine.memory[p]);
    }
  }
  CHECK(limited > 20);
  CHECK(refused > 20);
}

TEST_CASE("fusion keeps times, values that leave and what is between groups", "[placement]") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    const OpDag dag = random_dag(seed, 40, 2, true);
    const Machine machine = drawn_machine(2, false);
    const Nodes group = co_placed(dag, machine);
    const FusedDag made = fused(dag, group);
    Nanoseconds before = 0, after = 0;
    for (const Nanoseconds time : dag.time[1]) before += time;
    for (const Nanoseconds time : made.dag.time[1]) after += time;
    CHECK(before == after);
    std::size_t nodes = 0;
    for (const Nodes& members : made.members) {
      nodes += members.size();
      for (const std::uint32_t v : members) CHECK(group[v] == group[members.front()]);
    }
    CHECK(nodes == dag.size);
    for (const DagValue& value : made.dag.values) {
      for (const std::uint32_t reader : value.readers) CHECK((value.maker == no_node || value.maker < reader));
    }
  }
}

}  // namespace
}  // namespace plimsoll
