// Graphs seen as chains of the stages between their narrow places.

#include <catch2/catch.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "platforms/platform_file.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"
#include "tests/strategies/judged_plan.h"
#include "traces/imports/framework_graphs.h"

namespace plimsoll {
namespace {

std::variant<Problem, std::string> as_chain_of_stages(const Problem& problem) {
  const std::vector<Pass> passes = parse_spec("chain", "test");
  return passes[0].strategy->transform(problem, passes[0].options);
}

/// A chain whose backwards read all that a stage has: its graph says as much as itself.
Chain chain_with_all_kept(std::uint64_t seed, Random& random) {
  Chain chain = random_small_chain(seed, random.between(2, 4), false);  // so few that `exact` ends
  for (Stage& stage : chain.stages) {
    stage.keeps_input = stage.keeps_output = stage.recomputable = true;
    stage.forward_nograd_workspace = stage.forward_workspace;
    stage.parameters.clear();
  }
  return chain;
}

TEST_CASE("the graph of a chain becomes no faster chain, with the same work", "[transform][chain][property]") {
  for (const RandomCase seed : random_cases(1, 60)) {
    INFO("seed " << seed);
    Random random(seed);
    const Problem of_chain = problem_of(chain_with_all_kept(seed, random), gpus({}));
    const Problem of_graph = problem_of(of_chain.graph, gpus({}));
    const auto made = as_chain_of_stages(of_graph);
    if (std::holds_alternative<std::string>(made)) continue;
    const Problem& again = std::get<Problem>(made);
    Seconds work, was;
    for (const Stage& stage : again.chain->stages) work += stage.forward + stage.backward;
    for (const Stage& stage : of_chain.chain->stages) was += stage.forward + stage.backward;
    CHECK(work.value == Approx(was.value));
    CHECK(again.chain->stages.size() <= of_chain.chain->stages.size());
    for (const Bytes budget : front_budgets(again, parse_spec("exact", "test"))) {
      const Plan staged = judged(of_graph, "chain|exact", budget);
      CHECK(staged.makespan.value >= planned(of_graph, "exact", budget).makespan.value - 1e-9);
    }
  }
}

TEST_CASE("a row of ops is a chain of one stage an op", "[transform][chain]") {
  const Chain chain = even_chain(5);  // and a loss
  const Problem of_graph = problem_of(problem_of(chain, gpus({})).graph, gpus({}));
  const Problem again = std::get<Problem>(as_chain_of_stages(of_graph));
  REQUIRE(again.chain->stages.size() == 6);
  for (std::size_t i = 0; i < 5; ++i) {
    CHECK(again.chain->stages[i].forward.value == 1);
    CHECK(again.chain->stages[i].backward.value == 2);
    CHECK(again.chain->stages[i].output == Bytes{10});
    CHECK(again.chain->stages[i].saved == Bytes{15});
  }
  for (const Bytes budget : front_budgets(problem_of(chain, gpus({})), parse_spec("rotor(slots=100000)", "test"))) {
    CHECK(judged(of_graph, "chain|rotor(slots=100000)", budget).makespan ==
          planned(problem_of(chain, gpus({})), "rotor(slots=100000)", budget).makespan);
  }
}

TEST_CASE("a stage is one with a later one whose values its backward reads, and with all between",
          "[transform][chain]") {
  for (const std::size_t later : {1U, 2U}) {
    Graph graph = problem_of(even_chain(4), gpus({})).graph;  // and a loss: forward i is op i, its backward op 9 - i
    REQUIRE(graph.ops[9].phase == Phase::backward);
    REQUIRE(graph.ops[9].stage == 0);
    graph.ops[9].inputs.push_back(graph.ops[later].saved.at(0));
    const Problem problem = problem_of(graph, gpus({}));
    const Problem made = std::get<Problem>(as_chain_of_stages(problem));
    REQUIRE(made.chain->stages.size() == 5 - later);
    CHECK(made.chain->stages[0].forward.value == 1.0 + static_cast<double>(later));
    for (const Bytes budget : front_budgets(made, parse_spec("rotor", "test"))) judged(problem, "chain|rotor", budget);
  }
}

// torchvision's blocks overwrite the sums and norms that their ReLUs read.
TEST_CASE("what an in-place op overwrites is made in its own stage", "[transform][chain]") {
  const Problem problem = problem_of(framework_graph("resnet18:batch=2,size=64"), load_platform("h200"));
  const Problem made = std::get<Problem>(as_chain_of_stages(problem));
  const Graph& ops = *made.of_ops;
  std::map<StorageId, std::uint32_t> stage_of;
  std::size_t overwrites = 0;
  for (const Op& op : ops.ops) {
    if (op.phase != Phase::forward) continue;
    for (const TensorId t : op.outputs) CHECK(stage_of.try_emplace(ops[t].storage, op.stage).first->second == op.stage);
    overwrites += op.mutates.size();
  }
  CHECK(overwrites == 17 + 8);  // ReLUs and sums
  std::vector<std::string> blocks;
  for (const Stage& stage : made.chain->stages) {
    if (stage.name.starts_with("layer")) blocks.push_back(stage.name);
  }
  CHECK(blocks == std::vector<std::string>{"layer1.0", "layer1.1", "layer2.0", "layer2.1", "layer3.0", "layer3.1",
                                           "layer4.0", "layer4.1"});
  const Plan kept = judged(problem, "chain|store_all", Bytes{std::int64_t{1} << 40}),
             again = judged(problem, "chain|selective(stages=layer*,every=1)", Bytes{std::int64_t{1} << 40});
  Seconds blocks_again;
  for (const Stage& stage : made.chain->stages) {
    if (stage.name.starts_with("layer")) blocks_again += stage.forward;
  }
  CHECK(again.makespan.value == Approx((kept.makespan + blocks_again).value));
  CHECK(again.peak < kept.peak);
}

TEST_CASE("a graph's chain is cut into pipelines, those that split backwards among them", "[transform][chain]") {
  const Problem row = problem_of(problem_of(even_chain(5), gpus({})).graph, gpus({.count = 2}), {.micro_batches = 4});
  const double alone = planned(row, "chain|store_all").makespan.value;
  const double whole = planned(row, "chain|1f1b").makespan.value, split = planned(row, "chain|zb_h1").makespan.value;
  CHECK(whole < alone);
  CHECK(split <= whole);
}

TEST_CASE("no plan of a graph's chain is faster than the graph's fastest plan", "[transform][chain][property]") {
  std::size_t compared = 0;
  for (const RandomCase seed : random_cases(1, 120)) {
    INFO("seed " << seed);
    const Problem problem = problem_of(random_graph(seed, 4), gpus({}));
    const auto made = as_chain_of_stages(problem);
    if (std::holds_alternative<std::string>(made)) continue;
    for (const Bytes budget : front_budgets(std::get<Problem>(made), parse_spec("exact", "test"))) {
      const Plan staged = judged(problem, "chain|exact", budget);
      CHECK(staged.makespan.value >= planned(problem, "exact", budget).makespan.value - 1e-9);
      ++compared;
    }
  }
  if (all_cases()) CHECK(compared > 100);
}

TEST_CASE("a chain stays as it is, and a graph without narrow places is refused", "[transform][chain]") {
  const Problem chain = problem_of(even_chain(3), gpus({}));
  CHECK(std::get<Problem>(as_chain_of_stages(chain)).graph == chain.graph);
  Graph wide;  // two values at every place
  wide.name = "wide";
  const auto add = [&](std::string name, TensorKind kind) {
    wide.tensors.push_back({.name = std::move(name), .kind = kind, .bytes = Bytes{4}, .storage = {}});
    wide.tensors.back().storage = id_at<StorageId>(wide.storages++);
    return id_at<TensorId>(wide.tensors.size() - 1);
  };
  const TensorId in = add("in", TensorKind::input), a = add("a", TensorKind::activation),
                 b = add("b", TensorKind::activation), c = add("c", TensorKind::activation);
  wide.ops.push_back({.name = "both", .duration = Seconds{1}, .inputs = {in}, .outputs = {a, b}});
  wide.ops.push_back({.name = "loss", .duration = Seconds{1}, .inputs = {a, b}, .outputs = {c}});
  CHECK(std::get<std::string>(as_chain_of_stages(problem_of(wide, gpus({})))) ==
        "'wide' has no place in its forward where one value alone goes on");
}

}  // namespace
}  // namespace plimsoll
