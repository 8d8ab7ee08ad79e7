#include "strategies/placement/lists/list_schedulers.h"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>

#include "strategies/placement/emulation.h"
#include "strategies/placement/op_dag.h"
#include "tests/placement/op_dags.h"

namespace plimsoll {
namespace {

using Scheduler = ListOutcome (*)(const OpDag&, const Machine&);

constexpr std::array<Scheduler, 3> list_schedulers{heft_schedule, cpop_schedule, etf_schedule};

ListSchedule scheduled(Scheduler scheduler, const OpDag& dag, const Machine& machine) {
  ListOutcome outcome = scheduler(dag, machine);
  REQUIRE(std::holds_alternative<ListSchedule>(outcome));
  return std::get<ListSchedule>(std::move(outcome));
}

/// Some nodes, with their groups, run on the last processor only, others not there; no edge to the last node sends.
void pin(OpDag& dag, std::uint64_t seed) {
  const std::size_t host = dag.time.size() - 1;
  const auto pin_one = [&](std::uint32_t v, bool to_host) {
    for (std::size_t p = 0; p <= host; ++p) {
      if ((p == host) != to_host) dag.time[p][v] = cannot_run;
    }
  };
  for (std::uint32_t v = 0; v < dag.size; ++v) {
    const std::uint32_t first = dag.group[v] == no_node ? v : dag.together[dag.group[v]].front();
    const std::uint64_t kind = (first * 5 + seed) % 7;
    if (kind < 2) pin_one(v, kind == 0);
  }
  for (std::vector<DagEdge>* edges : {&dag.out.items, &dag.in.items}) {
    for (DagEdge& edge : *edges) {
      if (edge.bytes == 0) edge.sends = false;
    }
  }
}

/// The longest path of the least times; with equal processors also all work shared by them.
Nanoseconds makespan_bound(const OpDag& dag, const Machine& machine) {
  std::vector<Nanoseconds> time(dag.size, cannot_run);
  Nanoseconds work = 0, longest = 0;
  for (std::uint32_t v = 0; v < dag.size; ++v) {
    for (std::size_t p = 0; p < machine.size(); ++p) time[v] = std::min(time[v], time_on(dag, machine, v, p));
    work += time[v];
  }
  const std::vector<Nanoseconds> free(dag.out.items.size(), 0);
  for (const Nanoseconds bottom : levels(dag, time, free).bottom) longest = std::max(longest, bottom);
  const auto processors = static_cast<Nanoseconds>(machine.size());
  return std::max(longest, (work + processors - 1) / processors);
}

void check_schedule(const OpDag& dag, const Machine& machine, const ListSchedule& made) {
  const Emulation emulated = emulate_in_order(dag, machine, made.placement);
  CHECK(emulated.makespan == made.makespan);
  CHECK(made.makespan >= makespan_bound(dag, machine));
  for (std::uint32_t v = 0; v < dag.size; ++v) {
    const std::uint32_t p = made.placement.on[v];
    REQUIRE(time_on(dag, machine, v, p) != cannot_run);
    CHECK(machine.memory[p] > 0);
    if (dag.group[v] != no_node) CHECK(p == made.placement.on[dag.together[dag.group[v]].front()]);
  }
}

TEST_CASE("the ten tasks of the HEFT paper take 80 by heft and 86 by cpop", "[placement]") {
  const OpDag dag = heft_tasks();
  const Machine machine = drawn_machine(3, false);
  const ListSchedule heft = scheduled(heft_schedule, dag, machine);
  CHECK(heft.makespan == 80);
  CHECK(heft.placement.on == std::vector<std::uint32_t>{2, 0, 2, 1, 2, 1, 2, 0, 1, 1});
  const ListSchedule cpop = scheduled(cpop_schedule, dag, machine);
  CHECK(cpop.makespan == 86);
  // The critical path, tasks 1, 2, 9 and 10, on the second processor.
  for (const std::uint32_t v : {0u, 1u, 8u, 9u}) CHECK(cpop.placement.on[v] == 1);
}

TEST_CASE("heft puts a short op into the idle time before one that waits for a transfer", "[placement]") {
  // 0 and 1 run at once; 2 reads both and is much longer on any but the first processor, where it waits until 10 + 5;
  // 3 needs no more than the 13 ns that the first processor is idle before.
  const OpDag dag = drawn_dag({{2, 40, 30, 13}, {40, 10, 90, 40}}, {{0, 2, 0}, {1, 2, 5}});
  const ListSchedule made = scheduled(heft_schedule, dag, drawn_machine(2, false));
  CHECK(made.placement.on == std::vector<std::uint32_t>{0, 1, 0, 0});
  CHECK(made.placement.order[0] == std::vector<std::uint32_t>{0, 3, 2});
  CHECK(made.makespan == 45);
}

TEST_CASE("etf takes what starts first, and of equals what has more after it", "[placement]") {
  // 1 and 2 are ready at 1 where 0 ran and at 4 elsewhere; 3 follows 2, so that 2 comes first: 0 at 0, 2 at 1, and 3 at
  // 3 before 1, which then starts at 4 elsewhere.
  const OpDag dag = drawn_dag({{1, 2, 2, 3}}, {{0, 1, 3}, {0, 2, 3}, {2, 3, 4}});
  const ListSchedule made = scheduled(etf_schedule, dag, drawn_machine(2, true));
  CHECK(made.placement.order[0] == std::vector<std::uint32_t>{0, 2, 3});
  CHECK(made.placement.order[1] == std::vector<std::uint32_t>{1});
  CHECK(made.makespan == 6);
}

TEST_CASE("list schedulers keep groups and pins, and take as long as they say", "[placement]") {
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    INFO("seed " << seed);
    OpDag dag = random_dag(seed, 4 + static_cast<std::uint32_t>(seed % 40), 3, true);
    Machine machine = random_machine(seed, 3);
    if (seed % 3 == 0) machine.memory[seed % 2] = 0;
    if (seed % 2 == 0) pin(dag, seed);
    for (const Scheduler scheduler : list_schedulers) check_schedule(dag, machine, scheduled(scheduler, dag, machine));
  }
}

TEST_CASE("list schedulers on equal processors, and ops that take no time", "[placement]") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    OpDag dag = random_dag(seed, 30, 1, seed % 2 == 0);
    for (Nanoseconds& time : dag.time[0]) time = time > 6 ? 0 : time;
    const Machine machine = drawn_machine(1 + seed % 5, true);
    for (const Scheduler scheduler : list_schedulers) check_schedule(dag, machine, scheduled(scheduler, dag, machine));
  }
}

TEST_CASE("of equal processors list schedulers take the first", "[placement]") {
  const OpDag dag = drawn_dag({{1, 1}}, {{0, 1, 1}});
  for (const Scheduler scheduler : list_schedulers) {
    CHECK(scheduled(scheduler, dag, drawn_machine(3, true)).placement.on == std::vector<std::uint32_t>{0, 0});
    const OpDag free = drawn_dag({{2, 2, 2}}, {});
    CHECK(scheduled(scheduler, free, drawn_machine(2, true)).placement.on == std::vector<std::uint32_t>{0, 1, 0});
  }
}

TEST_CASE("list schedulers say where nothing can run", "[placement]") {
  OpDag dag = drawn_dag({{1, 1}, {cannot_run, 1}}, {{0, 1, 1}});
  Machine machine = drawn_machine(2, false);
  machine.memory[0] = 0;
  for (const Scheduler scheduler : list_schedulers) {
    CHECK(std::holds_alternative<Infeasible>(scheduler(dag, machine)));
  }
}

}  // namespace
}  // namespace plimsoll
