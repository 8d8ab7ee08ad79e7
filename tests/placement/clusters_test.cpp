#include "strategies/placement/clusters/clusters.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "strategies/placement/emulation.h"
#include "strategies/placement/units.h"
#include "tests/generate/random.h"
#include "tests/placement/op_dags.h"
#include "tests/placement/placement_rules.h"

namespace plimsoll {
namespace {

using Ons = std::vector<std::uint32_t>;

Ons digits(const PlacementOutcome& outcome) {
  REQUIRE(std::holds_alternative<Placement>(outcome));
  CHECK(std::get<Placement>(outcome).order.empty());
  return std::get<Placement>(outcome).on;
}

std::string written(const PlacementOutcome& outcome) {
  std::string text;
  for (const std::uint32_t p : digits(outcome)) text += static_cast<char>('0' + p);
  return text;
}

// A B E I M O P Q is the longest path of ParDNN's figure 2, then C G J K, then D L.
TEST_CASE("planners by clusters place ParDNN's figure 2 as by hand", "[placement]") {
  const OpDag dag = pardnn_figure();
  const Machine machine = drawn_machine(2, true);
  CHECK(written(place_on_one(dag, machine)) == "00000000000000000");
  CHECK(written(place_round_robin(dag, machine)) == "01010101010101010");
  // Starts without transfers: A 0, B C D 1, E F G H L 2, I J 3, K 4, M 5, N O 6, P 7, Q 8; in turn by load.
  CHECK(written(place_by_load(dag, machine)) == "01010101101001010");
  // The path has 8; C D F G H J K L get even with it, N goes to the first of equals.
  CHECK(written(place_critical_path(dag, machine)) == "00110111011100000");
  CHECK(linear_clusters(dag, machine) == Ons{0, 0, 1, 2, 0, 3, 1, 4, 0, 1, 1, 2, 0, 5, 0, 0, 0});
  // Clusters by start: the path 0; C.. 2, D L 2; F 3; H 4; N last.
  CHECK(written(place_linear_clusters(dag, machine)) == "00110111011100000");
}

// Critical paths found again and again from nothing.
Ons slow_linear_clusters(const OpDag& dag, const Machine& machine) {
  Ons cluster(dag.size, no_node);
  for (std::uint32_t number = 0;; ++number) {
    std::vector<Nanoseconds> bottom(dag.size, -1);
    Ons next(dag.size, no_node);
    std::uint32_t first = no_node;
    for (std::uint32_t v = dag.size; v-- > 0;) {
      if (cluster[v] != no_node) continue;
      Nanoseconds below = 0;
      for (const DagEdge& edge : dag.out[v]) {
        if (cluster[edge.node] != no_node) continue;
        const Nanoseconds over = machine.mean_transfer(edge.bytes) + bottom[edge.node];
        if (next[v] != no_node && over <= below) continue;
        below = over;
        next[v] = edge.node;
      }
      bottom[v] = mean_time(dag, machine, v) + below;
      if (first == no_node || bottom[v] >= bottom[first]) first = v;
    }
    if (first == no_node) return cluster;
    for (std::uint32_t v = first; v != no_node; v = next[v]) cluster[v] = number;
  }
}

TEST_CASE("linear clusters are those of levels that are all computed again after each path", "[placement]") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    const OpDag dag = random_dag(seed, 1 + static_cast<std::uint32_t>(seed / 2), 2, false);
    const Machine machine = random_machine(seed, 2);
    CHECK(linear_clusters(dag, machine) == slow_linear_clusters(dag, machine));
  }
}

TEST_CASE("dominant sequence clustering of a fork, a join, and a node that is partly free, by hand", "[placement]") {
  const Machine machine = drawn_machine(2, true);
  // The first child moves to the root and ends at 4, when the others could have begun at 3 and 2.
  const auto fork = dominant_sequence_clusters(drawn_dag({{1, 3, 3, 3}}, {{0, 1, 5}, {0, 2, 2}, {0, 3, 1}}), machine);
  CHECK(fork.of == Ons{0, 0, 2, 3});
  CHECK(fork.start == std::vector<Nanoseconds>{0, 1, 3, 2});
  // The last node would start at 7; behind the second one at 6; with the first one behind the second one at 5.
  const auto join = dominant_sequence_clusters(drawn_dag({{2, 3, 1}}, {{0, 2, 4}, {1, 2, 4}}), machine);
  CHECK(join.of == Ons{1, 1, 1});
  CHECK(join.start == std::vector<Nanoseconds>{3, 0, 5});
  // The first node's cluster is kept for the last one, which waits for the third, too; the second starts alone at 6.
  const auto kept = dominant_sequence_clusters(drawn_dag({{1, 3, 1, 1}}, {{0, 1, 5}, {0, 3, 10}, {2, 3, 1}}), machine);
  CHECK(kept.of == Ons{0, 1, 2, 0});
  CHECK(kept.start == std::vector<Nanoseconds>{0, 6, 0, 2});
}

// Yang and Gerasoulis prove it. All placements of up to six nodes on as many processors are tried.
TEST_CASE("dominant sequence clustering is best on forks and joins", "[placement][eleventh-9]") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    INFO("seed " << seed);
    Random random(seed);
    const std::uint32_t nodes = random.between(2, 6);
    const bool is_fork = random.chance(0.5);
    std::vector<Nanoseconds> times;
    std::vector<DrawnEdge> edges;
    for (std::uint32_t v = 0; v < nodes; ++v) times.push_back(random.between(1, 9));
    for (std::uint32_t v = 0; v + 1 < nodes; ++v) {
      edges.push_back({is_fork ? 0 : v, is_fork ? v + 1 : nodes - 1, random.between(0, 12)});
    }
    const OpDag dag = drawn_dag({times}, edges);
    const Machine machine = drawn_machine(nodes, true);
    Nanoseconds best = cannot_run;
    Ons on(nodes, 0);
    for (bool is_new = true; is_new;) {
      best = std::min(best, emulate(dag, machine, on, QueueOrder::fifo).makespan);
      best = std::min(best, emulate(dag, machine, on, QueueOrder::b_level).makespan);
      is_new = false;
      for (std::uint32_t v = 0; v < nodes && !is_new; ++v) {
        on[v] = (on[v] + 1) % nodes;
        is_new = on[v] != 0;
      }
    }
    const DominantSequenceClusters clusters = dominant_sequence_clusters(dag, machine);
    Nanoseconds makespan = 0;
    for (std::uint32_t v = 0; v < nodes; ++v) makespan = std::max(makespan, clusters.start[v] + times[v]);
    CHECK(makespan == best);
  }
}

TEST_CASE("starts of dominant sequence clusters can be kept", "[placement]") {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    INFO("seed " << seed);
    const OpDag dag = random_dag(seed, 30, 1, false);
    const Machine machine = drawn_machine(2, true);
    const DominantSequenceClusters clusters = dominant_sequence_clusters(dag, machine);
    std::vector<std::vector<std::pair<Nanoseconds, Nanoseconds>>> busy(dag.size);
    for (std::uint32_t v = 0; v < dag.size; ++v) {
      busy[clusters.of[v]].emplace_back(clusters.start[v], clusters.start[v] + dag.time[0][v]);
      for (const DagEdge& edge : dag.out[v]) {
        const bool is_sent = clusters.of[v] != clusters.of[edge.node];
        const Nanoseconds there = clusters.start[v] + dag.time[0][v] + (is_sent ? edge.bytes : 0);
        CHECK(there <= clusters.start[edge.node]);
      }
    }
    for (auto& each : busy) {
      std::ranges::sort(each);
      for (std::size_t i = 1; i < each.size(); ++i) CHECK(each[i - 1].second <= each[i].first);
    }
  }
}

TEST_CASE("one_device takes the fastest device that can hold all", "[placement]") {
  const OpDag dag = drawn_dag({{5, 5}, {3, 4}, {3, 3}}, {{0, 1, 8}});
  Machine machine = drawn_machine(3, false);
  CHECK(written(place_on_one(dag, machine)) == "22");
  machine.memory[2] = 7;  // the value has 8
  CHECK(written(place_on_one(dag, machine)) == "11");
  machine.memory[1] = 8;
  CHECK(written(place_on_one(dag, machine)) == "11");
  machine.memory = {7, 7, 7};
  const PlacementOutcome none = place_on_one(dag, machine);
  REQUIRE(std::holds_alternative<Infeasible>(none));
  CHECK(std::get<Infeasible>(none).reason == "no device can hold all ops");
  machine.memory = {0, 0, 0};
  CHECK(std::get<Infeasible>(place_on_one(dag, machine)).reason ==
        "no device that has memory can run op 0 of the micro-batch's 2");
}

// 4 bytes of each but the last, 12 of all: up to 6 and the largest, 4, on a device.
TEST_CASE("contiguous fills devices one after the other to their share of the bytes and the largest op",
          "[placement]") {
  const OpDag dag = drawn_dag({{1, 1, 1, 1}}, {{0, 1, 4}, {1, 2, 4}, {2, 3, 4}});
  Machine machine = drawn_machine(2, true);
  CHECK(written(place_contiguous(dag, machine)) == "0011");
  machine.memory = {unlimited_bytes, 8};  // the level stays at 6; the second one has room for 4 and 0
  CHECK(written(place_contiguous(dag, machine)) == "0011");
  machine.memory = {0, unlimited_bytes};
  CHECK(written(place_contiguous(dag, machine)) == "1111");
  machine.memory = {5, 5};  // while the second op runs, two values are there
  CHECK(std::get<Infeasible>(place_contiguous(dag, machine)).reason ==
        "device 0 cannot hold its piece of the topological order");
}

TEST_CASE("shares fill processors to one level, with what only one can run", "[placement]") {
  // Free: 12 ns on the first, 6 on the second; the last node only runs on the first, for 2.
  OpDag dag = drawn_dag({{4, 8, 2}, {2, 4, cannot_run}}, {});
  const auto units = units_of(dag, drawn_machine(2, false));
  // 2 + 12 a = 6 (1 - a): a = 4/18.
  const std::vector<double> found = shares(std::get<Units>(units));
  REQUIRE(found.size() == 2);
  CHECK(found[0] == Approx(4.0 / 18));
  CHECK(found[1] == Approx(14.0 / 18));
}

TEST_CASE("planners by clusters keep groups together and obey what processors can run", "[placement]") {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    INFO("seed " << seed);
    const PlacementCase made = random_placement_case(seed, 1 + static_cast<std::uint32_t>(seed % 40));
    for (const auto planner : {place_on_one, place_round_robin, place_contiguous, place_critical_path, place_by_load,
                               place_linear_clusters, place_dominant_sequence}) {
      check_rules(made, planner(made.dag, made.machine));
    }
  }
}

}  // namespace
}  // namespace plimsoll
