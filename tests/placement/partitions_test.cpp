#include "strategies/placement/clusters/partitioners.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "strategies/solve/graph_partition.h"
#include "tests/placement/op_dags.h"
#include "tests/placement/placement_rules.h"

namespace plimsoll {
namespace {

using Ons = std::vector<std::uint32_t>;

Ons on_of(const PlacementOutcome& outcome) {
  REQUIRE(std::holds_alternative<Placement>(outcome));
  return std::get<Placement>(outcome).on;
}

/// Two of four nodes each, all of which read all earlier ones of their four; and a light edge between the two.
OpDag two_knots() {
  std::vector<DrawnEdge> edges{{3, 4, 1}};
  for (const std::uint32_t first : {0u, 4u}) {
    for (std::uint32_t to = first; to < first + 4; ++to) {
      for (std::uint32_t from = first; from < to; ++from) edges.push_back({from, to, 50});
    }
  }
  return drawn_dag({std::vector<Nanoseconds>(8, 10)}, edges);
}

/// All work of a processor.
Nanoseconds work_on(const OpDag& dag, const Machine& machine, const Ons& on, std::uint32_t p) {
  Nanoseconds sum = 0;
  for (std::uint32_t v = 0; v < dag.size; ++v) sum += on[v] == p ? time_on(dag, machine, v, p) : 0;
  return sum;
}

using PlannerOfParts = PlacementOutcome (*)(const OpDag&, const Machine&, std::int32_t);

TEST_CASE("METIS and Scotch cut the light edge between two knots", "[placement]") {
  for (const PlannerOfParts planner : {place_by_metis, place_by_scotch}) {
    Ons on = on_of(planner(two_knots(), drawn_machine(2, true), 1));
    if (on[0] == 1) {
      for (std::uint32_t& p : on) p = 1 - p;
    }
    CHECK(on == Ons{0, 0, 0, 0, 1, 1, 1, 1});
  }
}

TEST_CASE("METIS and Scotch give a processor that is three times as fast three quarters of the work", "[placement]") {
  // 400 equal nodes in a row; on the second processor each takes a third of the time.
  std::vector<DrawnEdge> edges;
  for (std::uint32_t v = 0; v + 1 < 400; ++v) edges.push_back({v, v + 1, 1});
  const OpDag dag = drawn_dag({std::vector<Nanoseconds>(400, 30), std::vector<Nanoseconds>(400, 10)}, edges);
  const Machine machine = drawn_machine(2, false);
  for (const PlannerOfParts planner : {place_by_metis, place_by_scotch}) {
    const Ons on = on_of(planner(dag, machine, 1));
    const auto fast = std::ranges::count(on, 1u);
    CHECK(fast >= 285);
    CHECK(fast <= 315);
  }
}

TEST_CASE("METIS and Scotch give about equal work and the same parts for the same seed", "[placement]") {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    INFO("seed " << seed);
    const OpDag dag = random_dag(seed, 500, 1, true);
    const Machine machine = drawn_machine(4, true);
    for (const PlannerOfParts planner : {place_by_metis, place_by_scotch}) {
      const Ons on = on_of(planner(dag, machine, 1));
      CHECK(on_of(planner(dag, machine, 1)) == on);
      Nanoseconds all = 0, most = 0;
      for (std::uint32_t p = 0; p < 4; ++p) {
        all += work_on(dag, machine, on, p);
        most = std::max(most, work_on(dag, machine, on, p));
      }
      CHECK(static_cast<double>(most) <= 1.1 * static_cast<double>(all) / 4);
    }
  }
}

TEST_CASE("METIS and Scotch keep groups together and obey what processors can run", "[placement]") {
  std::size_t refused = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    INFO("seed " << seed);
    const PlacementCase made = random_placement_case(seed, 1 + static_cast<std::uint32_t>(seed));
    for (const PlannerOfParts planner : {place_by_metis, place_by_scotch}) {
      const PlacementOutcome outcome = planner(made.dag, made.machine, 1);
      if (const Infeasible* none = std::get_if<Infeasible>(&outcome)) {
        CHECK(none->reason.find("% of the work, where its share is") != std::string::npos);
        ++refused;  // few nodes for many processors
        continue;
      }
      check_rules(made, outcome);
    }
  }
  CHECK(refused <= 2);
}

TEST_CASE("weights far beyond 32 bits are scaled", "[placement]") {
  OpDag dag = two_knots();
  for (Nanoseconds& time : dag.time[0]) time = 1'000'000'000'000;
  dag.time[0][7] = 1;
  for (DagEdge& edge : dag.out.items) edge.bytes *= 1'000'000'000;
  for (DagEdge& edge : dag.in.items) edge.bytes *= 1'000'000'000;
  for (const PlannerOfParts planner : {place_by_metis, place_by_scotch}) {
    const Ons on = on_of(planner(dag, drawn_machine(2, true), 1));
    CHECK(std::ranges::count(on, 0u) >= 3);
    CHECK(std::ranges::count(on, 1u) >= 3);
  }
}

TEST_CASE("parts of a library that are none are refused with the reason", "[placement]") {
  const WeightedGraph graph{.first = {0, 0, 0, 0, 0}, .neighbour = {}, .edge_weight = {}, .weight = {1, 1, 1, 1}};
  const std::vector<double> halves{0.5, 0.5}, unequal{0.75, 0.25};
  const auto said = [&](std::span<const double> shares, std::vector<std::int32_t> parts) {
    const GraphParts checked = checked_parts("METIS", graph, shares, std::move(parts));
    const auto* const why = std::get_if<std::string>(&checked);
    return why == nullptr ? std::string() : *why;
  };
  CHECK(said(halves, {0, 0, 1, 1}).empty());
  CHECK(said(halves, {0, 0, 0, 0}).empty());  // twice the share is allowed
  CHECK(said(halves, {0, 0, 1}) == "METIS gave parts of 3 nodes instead of 4");
  CHECK(said(halves, {0, 0, -1, 1}) == "METIS gave node 2 of 4 no part");
  CHECK(said(halves, {0, 2, 0, 1}) == "METIS gave node 1 of 4 no part");
  CHECK(said(unequal, {1, 1, 1, 0}).empty());
  CHECK(said(unequal, {1, 1, 1, 1}) == "METIS gave part 1 of 2 100 % of the work, where its share is 25 %");
}

}  // namespace
}  // namespace plimsoll
