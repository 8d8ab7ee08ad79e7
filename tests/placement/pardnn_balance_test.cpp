#include "strategies/placement/pardnn/pardnn_balance.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "strategies/placement/op_dag.h"
#include "strategies/placement/pardnn/pardnn.h"
#include "strategies/placement/pardnn/pardnn_mapping.h"
#include "tests/placement/op_dags.h"
#include "tests/placement/placement_rules.h"

namespace plimsoll {
namespace {

using Paths = std::vector<std::vector<std::uint32_t>>;

constexpr PardnnOptions balancing{.memory = PardnnMemory::balance};

Units units_for(const OpDag& dag, const Machine& machine) {
  auto units = units_of(dag, machine);
  REQUIRE(std::holds_alternative<Units>(units));
  return std::get<Units>(std::move(units));
}

/// A row of ops of 1, each with a resident of these bytes, and what each sends to the next.
OpDag row_of(const std::vector<std::int64_t>& residents, const std::vector<std::int64_t>& sent) {
  std::vector<DrawnEdge> edges;
  for (std::uint32_t v = 0; v < sent.size(); ++v) edges.push_back({v, v + 1, sent[v]});
  OpDag dag = drawn_dag({std::vector<Nanoseconds>(residents.size(), 1)}, edges);
  for (std::uint32_t v = 0; v < residents.size(); ++v) {
    if (residents[v] > 0) dag.residents.push_back({residents[v], {v}});
  }
  return dag;
}

Paths split_of(const OpDag& dag, Paths primary, std::size_t primaries) {
  const Machine machine = drawn_machine(primaries, true);
  return with_split_path(dag, units_for(dag, machine), mean_transfers(dag, machine), primaries,
                         {std::move(primary), {}})
      .primary;
}

// Section 3.2: 70 % of the values and 60 % of the parameters on one, 30 % and 40 % on the other: so many parameters
// leave that it is 70 and 30, 30 and 70.
TEST_CASE("ParDNN balances parameters as its paper's example does", "[placement]") {
  OpDag dag = drawn_dag({std::vector<Nanoseconds>(14, 1)}, {{0, 1, 70}, {2, 3, 30}});
  for (std::uint32_t v = 4; v < 14; ++v) dag.residents.push_back({10, {v}});
  std::vector<std::uint32_t> on{0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1};
  const Units units = units_for(dag, drawn_machine(2, true));
  CHECK(memory_ratios(dag, 2, on)[0] == Approx(1.3));
  on = with_balanced_residents(dag, units, on);
  CHECK(memory_ratios(dag, 2, on)[0] == Approx(1));
  CHECK(std::count(on.begin() + 4, on.end(), 0u) == 3);
  CHECK(std::vector(on.begin(), on.begin() + 4) == std::vector<std::uint32_t>{0, 0, 1, 1});
}

// 15 : 6 with 9 and 6 on one: the larger would turn that round, the smaller makes it 9 : 12. Then nothing helps.
TEST_CASE("ParDNN moves the largest parameters by which the larger ratio falls", "[placement]") {
  const OpDag dag = row_of({9, 5, 1}, {});
  const Units units = units_for(dag, drawn_machine(2, true));
  CHECK(with_balanced_residents(dag, units, {0, 0, 0}) == std::vector<std::uint32_t>{1, 0, 0});
  const OpDag two = row_of({9, 6, 6}, {});
  CHECK(with_balanced_residents(two, units_for(two, drawn_machine(2, true)), {0, 0, 1}) ==
        std::vector<std::uint32_t>{0, 1, 1});
}

TEST_CASE("a parameter that two processors have a copy of leaves one when its last user goes", "[placement]") {
  OpDag dag = drawn_dag({{1, 1, 1}}, {});
  dag.residents = {{6, {0, 1}}, {4, {2}}};
  const Units units = units_for(dag, drawn_machine(2, true));
  CHECK(memory_ratios(dag, 2, std::vector<std::uint32_t>{0, 1, 0})[0] == Approx(10.0 / 16));
  // 10 : 6; with the op of 6 it is 4 : 6, of which the larger is less than before, since a copy is gone.
  CHECK(with_balanced_residents(dag, units, {0, 1, 0}) == std::vector<std::uint32_t>{1, 1, 0});
}

TEST_CASE("ParDNN splits a path that has most of the bytes where all get as much", "[placement]") {
  CHECK(split_of(row_of({6, 6, 6, 6}, {0, 0, 0}), {{0, 1, 2, 3}}, 2) == Paths{{0, 1}, {2, 3}});
  // Shares of 8, 8 and 8.
  CHECK(split_of(row_of({4, 4, 4, 4, 4, 4}, {0, 0, 0, 0, 0}), {{0, 1, 2, 3, 4, 5}}, 3) ==
        Paths{{0, 1}, {2, 3}, {4, 5}});
  // The other one has 4 already: 12 and 8 + 4.
  CHECK(split_of(row_of({4, 4, 4, 4, 4, 4}, {0, 0, 0, 0}), {{0, 1, 2, 3, 4}, {5}}, 2) == Paths{{0, 1, 2}, {3, 4, 5}});
}

TEST_CASE("ParDNN leaves a path whole that has no more than twice the mean of the others", "[placement]") {
  CHECK(split_of(row_of({4, 4, 4}, {0}), {{0, 1}, {2}}, 2) == Paths{{0, 1}, {2}});
  CHECK(split_of(row_of({4, 5, 4}, {0}), {{0, 1}, {2}}, 2) == Paths{{0}, {1, 2}});
}

// 40 ops of 10: pieces of 200. The cut may be 20 off: behind 18 to 22 ops; the least is sent behind the 22nd.
TEST_CASE("ParDNN cuts a path near equal pieces where least is sent", "[placement]") {
  std::vector<std::int64_t> sent(39, 0);
  OpDag dag = row_of(std::vector<std::int64_t>(40, 10), sent);
  std::vector<std::uint32_t> path(40);
  for (std::uint32_t v = 0; v < 40; ++v) path[v] = v;
  std::vector<Nanoseconds> transfer(39, 9);
  transfer[21] = 5;
  transfer[22] = transfer[10] = 0;
  const Units units = units_for(dag, drawn_machine(2, true));
  const Slices made = with_split_path(dag, units, transfer, 2, {{path}, {}});
  CHECK(made.primary[0].size() == 22);
  CHECK(made.primary[1].front() == 22);
}

// Two layers, a group each, and after the backward of each a backward op of no group.
TEST_CASE("a backward op stays in the piece of its group, or of what is before it", "[placement]") {
  OpDag dag = row_of({8, 8, 0, 0, 0, 0}, {0, 0, 0, 0, 0});
  dag.together = {{0, 4}, {1, 2}};
  dag.group = {0, 1, 1, no_node, 0, no_node};
  dag.backward = {false, false, true, true, true, true};
  CHECK(split_of(dag, {{0, 1, 2, 3, 4, 5}}, 2) == Paths{{0, 4, 5}, {1, 2, 3}});
}

TEST_CASE("ParDNN's heuristic II keeps memory limits, or names one with which it does", "[placement]") {
  std::uint32_t kept = 0, refused = 0, lower = 0, cases = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    INFO("seed " << seed);
    PlacementCase made = random_placement_case(seed, 10 + static_cast<std::uint32_t>(seed % 60));
    const auto needed = [&](const PlacementOutcome& outcome) {
      const std::vector<std::uint32_t>& on = std::get<Placement>(outcome).on;
      return memory_of(made.dag, made.machine, on, emulate(made.dag, made.machine, on, QueueOrder::fifo));
    };
    const PlacementOutcome free = place_pardnn(made.dag, made.machine, balancing);
    check_rules(made, free);
    const std::int64_t most = std::ranges::max(needed(free));
    const std::int64_t plain =
        std::ranges::max(needed(place_pardnn(made.dag, made.machine, {.memory = PardnnMemory::ignored})));
    ++cases;
    lower += most < plain ? 1 : 0;
    for (std::int64_t& memory : made.machine.memory) {
      if (memory > 0) memory = std::max<std::int64_t>(1, most * (80 + static_cast<std::int64_t>(seed % 40)) / 100);
    }
    const PlacementOutcome outcome = place_pardnn(made.dag, made.machine, balancing);
    if (std::holds_alternative<Placement>(outcome)) {
      check_rules(made, outcome);
      const std::vector<std::int64_t> peaks = needed(outcome);
      for (std::size_t p = 0; p < peaks.size(); ++p) CHECK(peaks[p] <= made.machine.memory[p]);
      ++kept;
      continue;
    }
    ++refused;
    const std::optional<Bytes> smallest = std::get<Infeasible>(outcome).smallest;
    if (!smallest) continue;  // the host's memory is too small
    for (const std::int64_t change : {0, -1}) {
      for (std::int64_t& memory : made.machine.memory) memory = memory > 0 ? smallest->count + change : 0;
      CHECK(std::holds_alternative<Placement>(place_pardnn(made.dag, made.machine, balancing)) == (change == 0));
    }
  }
  CHECK(kept > 100);
  CHECK(refused > 100);
  CHECK(4 * lower > cases);
}

}  // namespace
}  // namespace plimsoll
