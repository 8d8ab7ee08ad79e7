// Chen's segments on graphs, and greedy eviction.

#include <catch2/catch.hpp>
#include <cmath>

#include "strategies/compose/plan.h"
#include "strategies/models/op_model.h"
#include "strategies/rematerialization/cuts/articulation_points.h"
#include "tests/generate/dense_graph.h"
#include "tests/generate/problems.h"
#include "tests/strategies/graph_oracle.h"
#include "tests/strategies/judged_plan.h"

namespace plimsoll {
namespace {

// 100 unit layers: 10 segments of 10. About 10 checkpoints and one segment are there, plus a gradient or two.
TEST_CASE("ap_sqrt keeps the memory of a chain of n unit layers near 2 sqrt(n), for one more forward pass at most",
          "[ap]") {
  const auto n = GENERATE(16u, 100u, 400u);
  const Problem problem = problem_of(unit_net(n), gpus({}));
  const Plan made = planned(problem, "ap_sqrt");
  CHECK(static_cast<double>(made.peak.count) <= 2 * std::sqrt(n) + 4);
  CHECK(made.makespan.value <= 3 * n + 1);
}

// A diamond: 0 -> 1 -> {2, 3} -> 4 -> loss. Two values cross behind ops 2 and 3 (1 and 2, then 2 and 3).
TEST_CASE("articulation points are where one value crosses", "[ap]") {
  Graph graph = unit_net(5);
  graph.ops[3].inputs = {graph.ops[1].outputs[0]};
  graph.ops[4].inputs = {graph.ops[2].outputs[0], graph.ops[3].outputs[0]};
  const Problem problem = problem_of(graph, gpus({}));
  const Partition partition = one_device(problem.graph, 1, 1);
  const OpModel model = op_model({problem, partition, PartId{0}, 1});
  CHECK(cut_points(model, Points::articulation) == std::vector<std::size_t>{0, 1, 4});
  CHECK(cut_points(model, Points::all) == std::vector<std::size_t>{0, 1, 2, 3, 4});
}

TEST_CASE("ap_greedy is never slower than ap_sqrt by much and never above its budget", "[ap]") {
  const Problem problem = problem_of(unit_net(64), gpus({}));
  const Plan sqrt_plan = planned(problem, "ap_sqrt");
  const Plan greedy = planned(problem, "ap_greedy", sqrt_plan.peak + Bytes{2});
  CHECK(greedy.peak <= sqrt_plan.peak + Bytes{2});
  CHECK(greedy.makespan.value <= 1.05 * sqrt_plan.makespan.value);
}

TEST_CASE("a DenseNet-like graph of 3,000 ops fits half its memory with less than 20 % more time", "[ap][eleventh-8]") {
  const Problem problem = problem_of(dense_graph(dense_layers), gpus({}));
  REQUIRE(problem.graph.ops.size() > 3000);
  const Plan plain = planned(problem, "store_all");
  const auto spec = GENERATE("greedy_recompute", "ap_greedy(points=all)", "rockmate");
  const Plan half = planned(problem, spec, Bytes{plain.peak.count / 2});
  CHECK(half.peak.count <= plain.peak.count / 2);
  CHECK(half.makespan.value <= 1.2 * plain.makespan.value);
}

}  // namespace
}  // namespace plimsoll
