#include "strategies/placement/clusters/acyclic_parts.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <random>

#include "strategies/placement/clusters/partitioners.h"
#include "tests/placement/op_dags.h"
#include "tests/placement/placement_rules.h"

namespace plimsoll {
namespace {

using Ons = std::vector<std::uint32_t>;

Ons placed_acyclic(const OpDag& dag, const Machine& machine, std::int32_t seed) {
  const PlacementOutcome outcome = place_acyclic(dag, machine, seed);
  REQUIRE(std::holds_alternative<Placement>(outcome));
  CHECK(std::get<Placement>(outcome).order.empty());
  return std::get<Placement>(outcome).on;
}

/// Each node a vertex of its time, each value with readers a net.
NetDag nets_of(const OpDag& dag) {
  NetDag made;
  for (const Nanoseconds time : dag.time[0]) made.weight.push_back(time);
  for (const DagValue& value : dag.values) {
    if (value.maker == no_node || value.readers.empty()) continue;
    made.maker.push_back(value.maker);
    made.bytes.push_back(value.bytes);
    made.readers.items.insert(made.readers.items.end(), value.readers.begin(), value.readers.end());
    made.readers.end_row();
  }
  list_nets(made);
  return made;
}

// Equal halves of a row of six with one light edge, which is not in the middle: 1.1 allows no other halves.
TEST_CASE("acyclic parts of small graphs, by hand", "[placement]") {
  const std::vector<Nanoseconds> ones(6, 10);
  const OpDag row = drawn_dag({ones}, {{0, 1, 9}, {1, 2, 9}, {2, 3, 5}, {3, 4, 1}, {4, 5, 9}});
  CHECK(placed_acyclic(row, drawn_machine(2, true), 1) == Ons{0, 0, 0, 1, 1, 1});
  // Two rows side by side, numbered in turn: each row is a part, and nothing is sent.
  const OpDag rows = drawn_dag({ones}, {{0, 2, 9}, {2, 4, 9}, {1, 3, 9}, {3, 5, 9}});
  const Ons on = placed_acyclic(rows, drawn_machine(2, true), 1);
  CHECK((on == Ons{0, 1, 0, 1, 0, 1} || on == Ons{1, 0, 1, 0, 1, 0}));
  // A value that two parts read beside its maker's is sent twice, however many readers they have.
  OpDag value = drawn_dag({ones}, {});
  value.values.push_back({0, 7, {1, 2, 3, 4, 5}});
  const NetDag nets = nets_of(value);
  CHECK(cut_bytes(nets, Ons{0, 0, 1, 1, 2, 2}) == 14);
  CHECK(cut_bytes(nets, Ons{0, 1, 1, 1, 1, 1}) == 7);
}

TEST_CASE("a circle of groups is on one processor", "[placement]") {
  OpDag dag = drawn_dag({std::vector<Nanoseconds>(6, 10)}, {{0, 1, 1}, {1, 2, 1}, {2, 3, 1}, {3, 4, 1}, {4, 5, 1}});
  dag.together = {{0, 2}};  // and so 1, between them
  dag.group[0] = dag.group[2] = 0;
  CHECK(placed_acyclic(dag, drawn_machine(2, true), 1) == Ons{0, 0, 0, 1, 1, 1});
}

TEST_CASE("pairs of a matching make no circle", "[placement]") {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    INFO("seed " << seed);
    const NetDag nets = nets_of(random_dag(seed, 3 + static_cast<std::uint32_t>(seed), 1, false));
    std::mt19937_64 random(seed);
    for (const LevelsFrom from : {LevelsFrom::start, LevelsFrom::end}) {
      const Ons pairs = acyclic_matching(nets, from, 1000, random);
      const NetContraction made = contracted(nets, pairs);  // it refuses circles
      std::int64_t weight = 0;
      for (const std::int64_t each : made.dag.weight) weight += each;
      CHECK(weight == std::accumulate(nets.weight.begin(), nets.weight.end(), std::int64_t{0}));
      for (std::uint32_t n = 0; n < made.dag.nets(); ++n) CHECK(made.dag.maker[n] < made.dag.readers[n].front());
      if (nets.size() > 100) CHECK(made.dag.size() < 0.8 * nets.size());
    }
  }
}

TEST_CASE("what a contraction cuts is what the graph cuts", "[placement]") {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    INFO("seed " << seed);
    const NetDag nets = nets_of(random_dag(seed, 60, 1, false));
    std::mt19937_64 random(seed);
    const NetContraction made = contracted(nets, acyclic_matching(nets, LevelsFrom::start, 1000, random));
    Ons coarse, fine;
    for (std::uint32_t v = 0; v < made.dag.size(); ++v) coarse.push_back(static_cast<std::uint32_t>(random() % 4));
    for (const std::uint32_t v : made.of) fine.push_back(coarse[v]);
    CHECK(cut_bytes(made.dag, coarse) == cut_bytes(nets, fine));
  }
}

/// Whether a net leads from a part to a smaller number.
bool is_ordered(const NetDag& nets, const Ons& part) {
  for (std::uint32_t n = 0; n < nets.nets(); ++n) {
    for (const std::uint32_t r : nets.readers[n]) {
      if (part[nets.maker[n]] > part[r]) return false;
    }
  }
  return true;
}

TEST_CASE("improved parts cut no more, and no vertex cuts less in the next part", "[placement]") {
  constexpr std::uint32_t parts = 4;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    INFO("seed " << seed);
    const NetDag nets = nets_of(random_dag(seed, 40, 1, false));
    Ons part;
    for (std::uint32_t v = 0; v < nets.size(); ++v) part.push_back(parts * v / nets.size());
    const std::vector<PartLimit> limits(parts, PartLimit{1.0 / parts, 1e9});
    const std::int64_t before = cut_bytes(nets, part);
    improve_parts(nets, limits, part);
    const std::int64_t after = cut_bytes(nets, part);
    CHECK(after <= before);
    CHECK(is_ordered(nets, part));
    for (std::uint32_t v = 0; v < nets.size(); ++v) {
      for (const std::uint32_t to : {part[v] - 1, part[v] + 1}) {
        Ons moved = part;
        moved[v] = to;
        if (to < parts && is_ordered(nets, moved)) CHECK(cut_bytes(nets, moved) >= after);
      }
    }
  }
}

TEST_CASE("acyclic parts are in order, of equal work within 1.1, and the same for the same seed", "[placement]") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    INFO("seed " << seed);
    const OpDag dag = random_dag(seed, 600, 1, false);
    const std::uint32_t parts = 2 + static_cast<std::uint32_t>(seed % 7);
    const Machine machine = drawn_machine(parts, true);
    const Ons on = placed_acyclic(dag, machine, 1);
    CHECK(placed_acyclic(dag, machine, 1) == on);
    std::vector<Nanoseconds> work(parts, 0);
    Nanoseconds all = 0;
    for (std::uint32_t v = 0; v < dag.size; ++v) {
      work[on[v]] += dag.time[0][v];
      all += dag.time[0][v];
      for (const DagEdge& edge : dag.out[v]) CHECK(on[v] <= on[edge.node]);
    }
    for (const Nanoseconds each : work) CHECK(static_cast<double>(each) <= 1.1 * static_cast<double>(all) / parts);
  }
}

TEST_CASE("acyclic parts are as fast as their processors", "[placement]") {
  std::vector<DrawnEdge> edges;
  for (std::uint32_t v = 0; v + 1 < 400; ++v) edges.push_back({v, v + 1, 1});
  const OpDag dag = drawn_dag({std::vector<Nanoseconds>(400, 30), std::vector<Nanoseconds>(400, 10)}, edges);
  const auto fast = std::ranges::count(placed_acyclic(dag, drawn_machine(2, false), 1), 1u);
  CHECK(fast >= 290);
  CHECK(fast <= 330);  // 1.1 * 300
}

TEST_CASE("acyclic parts keep groups together and obey what processors can run", "[placement]") {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    INFO("seed " << seed);
    const PlacementCase made = random_placement_case(seed, 1 + static_cast<std::uint32_t>(seed));
    check_rules(made, place_acyclic(made.dag, made.machine, 1));
  }
}

}  // namespace
}  // namespace plimsoll
