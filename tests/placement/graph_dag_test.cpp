#include "strategies/placement/graph_dag.h"

#include <catch2/catch.hpp>
#include <string>

#include "sim/io/input_error.h"
#include "sim/judge/check.h"
#include "sim/measure/metrics.h"
#include "strategies/compose/plan.h"
#include "strategies/list.h"
#include "tests/generate/problems.h"

namespace plimsoll {
namespace {

TensorId add_value(Graph& graph, const std::string& name, std::int64_t bytes) {
  graph.tensors.push_back({.name = name,
                           .kind = TensorKind::activation,
                           .bytes = Bytes{bytes},
                           .storage = id_at<StorageId>(graph.storages++),
                           .shape = {},
                           .dtype = {}});
  return id_at<TensorId>(graph.tensors.size() - 1);
}

TEST_CASE("a graph as placements see it: times, values, edges", "[placement]") {
  Graph graph = row_of_ops(3);
  graph.ops[2].inputs.push_back(graph.ops[0].outputs[0]);  // 0 is read by 1 and 2
  graph.ops[1].workspace = Bytes{5};
  const Problem problem =
      problem_of(graph, gpus({.count = 2, .to_peers = BytesPerSecond{4}, .peer_latency = Seconds{1}}));
  const GraphDag made = graph_dag(problem, 2);
  CHECK(made.dag.size == 3);
  CHECK(made.dag.time == std::vector<std::vector<Nanoseconds>>{{1'000'000'000, 1'000'000'000, 1'000'000'000}});
  CHECK(made.dag.workspace == std::vector<std::int64_t>{0, 5, 0});
  CHECK(made.dag.out[0].size() == 2);
  CHECK(made.dag.in[2].size() == 2);
  CHECK(made.dag.out[0][1].bytes == 4);
  CHECK(made.dag.together.empty());
  const Machine machine = machine_of(problem, made, Bytes{100}, 0.5);
  CHECK(machine.memory == std::vector<std::int64_t>{50, 50});
  CHECK(machine.transfer(0, 1, 8) == 3'000'000'000);
  CHECK(budget_that_leaves(problem, Bytes{50}, 0.5) == Bytes{100});
  CHECK(budget_that_leaves(problem, Bytes{51}, 0.5) == Bytes{102});
}

TEST_CASE("what overwrites a value in place shares a device with its maker and earlier readers", "[placement]") {
  Graph graph = row_of_ops(4);  // 0 -> 1 -> 2 -> 3; 2 overwrites what 1 reads, behind it
  const TensorId first = graph.ops[0].outputs[0];
  graph.tensors.push_back(graph[first]);  // the same storage
  const TensorId second = id_at<TensorId>(graph.tensors.size() - 1);
  graph.tensors.back().name = "overwritten";
  graph.ops[2].inputs = {graph.ops[1].outputs[0], first};
  graph.ops[2].mutates = {first};
  graph.ops[2].outputs = {second};
  graph.ops[3].inputs = {second};
  const Problem problem = problem_of(graph, gpus({.count = 2}));
  const GraphDag made = graph_dag(problem, 2);
  CHECK(made.dag.together == std::vector<std::vector<std::uint32_t>>{{0, 1, 2}});
  CHECK(made.dag.group == std::vector<std::uint32_t>{0, 0, 0, no_node});
  const std::vector<Pass> passes{pass_of(round_robin_strategy)};
  const Plan plan = std::get<Plan>(plimsoll::plan(problem, passes, std::nullopt));
  CHECK(check(plan.schedule, problem.graph, problem.platform).empty());
  CHECK(devices_used(plan.schedule) == 2);
}

TEST_CASE("users of a parameter share a device unless copies are asked for", "[placement]") {
  Graph graph = row_of_ops(4);
  const auto add_parameter = [&](const char* name, TensorKind kind) {
    const TensorId t = add_value(graph, name, 8);
    graph.tensors[t.index].kind = kind;
    return t;
  };
  const TensorId w = add_parameter("w", TensorKind::parameter);
  const TensorId g = add_parameter("g", TensorKind::parameter_gradient);
  graph.tensors[g.index].gradient_of = w;
  graph.ops[0].inputs.push_back(w);
  graph.ops[2].inputs.push_back(w);
  graph.ops[3].outputs.push_back(g);
  graph.ops[3].phase = Phase::backward;
  const Problem problem = problem_of(graph, gpus({.count = 2}));
  CHECK(graph_dag(problem, 2).dag.together == std::vector<std::vector<std::uint32_t>>{{0, 2, 3}});
  const OpDag apart = graph_dag(problem, 2, ParameterHomes::copies).dag;
  CHECK(apart.together.empty());
  REQUIRE(apart.residents.size() == 2);
  CHECK(apart.residents[0].users == std::vector<std::uint32_t>{0, 2});
  CHECK(apart.residents[1].users == std::vector<std::uint32_t>{3});
  CHECK(apart.residents[1].appears);
}

TEST_CASE("pinned ops run on the host, and what is on devices is copied there and back", "[placement]") {
  Graph graph = row_of_ops(4);
  graph.ops[2].attributes.emplace_back("device", "host");
  graph.ops[2].duration = Seconds{5};
  const TensorId also = add_value(graph, "also", 4);  // another value of the host's, read on a device
  graph.ops[2].outputs.push_back(also);
  graph.ops[3].inputs.push_back(also);
  const Problem problem = problem_of(graph, gpus({.count = 3, .to_host = BytesPerSecond{4}}), {.micro_batches = 2});
  for (const StrategyInfo* strategy : strategies()) {
    if (strategy->family != Family::placement) continue;
    INFO(strategy->name);
    const std::vector<Pass> passes{pass_of(*strategy)};
    const Plan made = std::get<Plan>(plan(problem, passes, std::nullopt));
    for (const Violation& each : check(made.schedule, problem.graph, problem.platform)) FAIL_CHECK(each.what);
    std::vector<bool> is_freed(made.schedule.buffers.size(), false);
    for (const Step& step : made.schedule.steps) {
      for (const BufferId b : made.schedule.buffers_in(step.frees)) is_freed[b.index] = true;
    }
    for (std::size_t b = 0; b < is_freed.size(); ++b) {
      const bool on_host = !problem.platform[made.schedule.buffers[b].memory].device;
      CHECK((is_freed[b] || !on_host));  // nothing stays there
    }
    CHECK(made.makespan >= Seconds{2 * 5 + 2 + 1 + 2});  // the host's two runs, and what is before and behind them
  }
}

std::string refusal_of_placement(const Graph& graph, const Platform& platform, const char* passes = "one") {
  try {
    const Problem problem = problem_of(graph, platform);
    const bool places = std::string(passes) == "one";
    const std::vector<Pass> list{pass_of(places ? one_device_strategy : store_all_strategy)};
    plan(problem, list, std::nullopt);
  } catch (const InputError& error) {
    return error.what();
  }
  return "nothing";
}

TEST_CASE("what cannot be placed is refused with the reason", "[placement]") {
  Graph graph = row_of_ops(3);
  graph.ops[1].attributes.emplace_back("device", "host");
  CHECK(refusal_of_placement(graph, gpus({}), "store_all") ==
        "ops of 'row' are pinned to the host: begin with a placement, such as one_device");
  Platform alone = gpus({});
  alone.memories.pop_back();
  alone.links.clear();
  alone.vertices.clear();
  alone.vertices.push_back({MemoryId{0}, "gpu0"});
  CHECK(refusal_of_placement(graph, alone) == "ops are pinned to the host, and platform 'test' has none");
  graph.colocate = {{OpId{1}, OpId{2}}};
  CHECK(refusal_of_placement(graph, gpus({})) == "'o1' is pinned to the host and must be where 'o2' is, which is not");
}

TEST_CASE("a group that keeps more than any device has is refused, an op that needs more than the budget named",
          "[placement]") {
  Graph graph = row_of_ops(3);
  graph.ops[1].workspace = Bytes{90};
  const Problem small = problem_of(graph, gpus({.count = 2}));
  for (const StrategyInfo* strategy : {&heft_strategy, &auto_strategy, &pardnn_strategy}) {
    const std::vector<Pass> passes{pass_of(*strategy)};
    const PlanOutcome outcome = plan(small, passes, Bytes{50});
    const Infeasible& none = std::get<Infeasible>(outcome);
    CHECK(none.reason == "'o1' alone needs 98 B");
    CHECK(none.smallest == Bytes{98});
  }
  const TensorId w = add_value(graph, "w", 200);
  graph.tensors[w.index].kind = TensorKind::parameter;
  graph.ops[0].inputs.push_back(w);
  graph.ops[2].inputs.push_back(w);
  CHECK(refusal_of_placement(graph, gpus({.count = 2, .memory = Bytes{150}})) ==
        "'o0' and the 1 ops that share its device keep 200 B there, more than any device of 'test' has (150 B); "
        "parameters=copies may let them go apart");
}

}  // namespace
}  // namespace plimsoll
