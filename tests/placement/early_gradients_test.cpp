// Recorded steps of replicas exchange gradients in their backward: parts hand no parameter gradients on, so that such a
// graph is refused where it would be cut, and planned where it is not.

#include <catch2/catch.hpp>
#include <string>
#include <variant>

#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "tests/bad_input.h"
#include "tests/generate/problems.h"

namespace plimsoll {
namespace {

Graph exchanged_in_backward() {
  Graph graph;
  graph.name = "replica";
  const auto add = [&](const char* name, TensorKind kind, std::int64_t bytes) {
    graph.tensors.push_back(
        {.name = name, .kind = kind, .bytes = Bytes{bytes}, .storage = id_at<StorageId>(graph.storages++)});
    return id_at<TensorId>(graph.tensors.size() - 1);
  };
  const auto run = [&](const char* name, Phase phase, std::vector<TensorId> reads, TensorId makes) {
    graph.ops.push_back(
        {.name = name, .phase = phase, .duration = Seconds{1}, .inputs = std::move(reads), .outputs = {makes}});
  };
  const TensorId x = add("x", TensorKind::input, 4), w = add("w", TensorKind::parameter, 8);
  const TensorId y = add("y", TensorKind::activation, 4), dw = add("dw", TensorKind::parameter_gradient, 8);
  run("forward", Phase::forward, {x, w}, y);
  run("backward", Phase::backward, {y, x}, dw);
  run("all_reduce", Phase::backward, {dw}, add("bucket", TensorKind::gradient, 8));
  return graph;
}

TEST_CASE("a graph that reads gradients in its backward is refused by what cuts it", "[placement]") {
  const Problem problem = problem_of(exchanged_in_backward(), gpus({.count = 2}));
  for (const std::string spec : {"heft", "contiguous", "baechi_etf", "pardnn|greedy_recompute"}) {
    const std::string name = spec.substr(0, spec.find('|'));
    CHECK(complaint_of([&] { plan(problem, parse_spec(spec, "test"), std::nullopt); }) ==
          name + ": op 'all_reduce' reads parameter gradients before the update, and parts hand none on");
  }
  CHECK(std::holds_alternative<Plan>(plan(problem, parse_spec("store_all", "test"), std::nullopt)));
}

}  // namespace
}  // namespace plimsoll
