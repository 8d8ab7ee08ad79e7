#include "strategies/placement/pardnn/pardnn_mapping.h"

#include <catch2/catch.hpp>

#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "tests/generate/problems.h"
#include "tests/placement/op_dags.h"
#include "traces/models/synthetic_graphs.h"

namespace plimsoll {
namespace {

// Four layers over two steps: an op of 4 of the layer's group, then one of 1 that the next layer reads. Each layer has
// 8 of 32: two are half of it, and a layer goes where the one before it is as long as there is room.
TEST_CASE("ParDNN puts groups where they exchange most, a share of the work on each device", "[placement]") {
  std::vector<Nanoseconds> time;
  std::vector<DrawnEdge> edges;
  for (std::uint32_t v = 0; v < 16; ++v) {
    time.push_back(v % 2 == 0 ? 4 : 1);
    if (v % 8 != 7) edges.push_back({v, v + 1, 2});
  }
  OpDag dag = drawn_dag({time}, edges);
  for (std::uint32_t layer = 0; layer < 4; ++layer) {
    dag.together.push_back({2 * layer, 8 + 2 * layer});
    for (const std::uint32_t v : dag.together.back()) dag.group[v] = layer;
  }
  const Machine machine = drawn_machine(2, true);
  const Units units = std::get<Units>(units_of(dag, machine));
  const std::optional<std::vector<std::uint32_t>> made = near_groups(dag, machine, units);
  REQUIRE(made);
  for (std::uint32_t v = 0; v < 16; ++v) CHECK((*made)[v] == (v % 8 < 4 ? 0U : 1U));
  const OpDag figure = pardnn_figure();
  CHECK_FALSE(near_groups(figure, machine, std::get<Units>(units_of(figure, machine))));
}

// The steps of a layer share its weights, which ParDNN's paths know nothing of.
TEST_CASE("ParDNN is ahead of METIS and linear clustering on a wide graph whose steps share weights", "[placement]") {
  const Problem problem =
      problem_of(synthetic_graph("rnn:ops=4000"),
                 gpus({.count = 8, .to_peers = BytesPerSecond{130e9}, .peer_latency = Seconds{25e-6}}));
  const auto makespan = [&](const char* spec) {
    return std::get<Plan>(plan(problem, parse_spec(spec, "test"), std::nullopt)).makespan;
  };
  const Seconds own = makespan("pardnn");
  CHECK(own < makespan("metis"));
  CHECK(own < makespan("linear_clustering"));
}

}  // namespace
}  // namespace plimsoll
