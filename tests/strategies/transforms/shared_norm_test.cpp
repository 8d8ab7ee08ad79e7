// Layer norms that keep their result: what waits then, by hand.

#include <algorithm>
#include <catch2/catch.hpp>

#include "platforms/platform_file.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "tests/generate/problems.h"
#include "tests/strategies/judged_plan.h"
#include "tests/strategies/values_waiting.h"
#include "traces/imports/framework_graphs.h"

namespace plimsoll {
namespace {

Problem normed_on_h200(const std::string& reference) {
  return problem_of(framework_graph(reference), load_platform("h200"), {});
}

Problem with_shared_norms(const Problem& problem) {
  return transformed(problem, parse_spec("shared_norm|store_all", "test"));
}

TEST_CASE("layer norms that share their result with the next layer keep nothing of their own", "[transform][norm]") {
  const Problem problem = normed_on_h200("deit_s:batch=2"), shared = with_shared_norms(problem);
  const std::int64_t value = 4 * 2 * 197 * 384;  // of the 24 norms of layers and the last one
  const auto waiting = [](const Problem& of, const std::string& spec) {
    const ValuesWaiting values = waiting_after_forward(of, planned(of, spec).schedule);
    return (values.plain + values.packed).count;
  };
  const std::int64_t plain = waiting(problem, "store_all"), kept = waiting(shared, "store_all");
  CHECK(plain - kept == 25 * value);
  CHECK(waiting(problem, "approx_bp") - waiting(shared, "approx_bp") == 25 * value);
  CHECK(judged(shared, "store_all").makespan == judged(problem, "store_all").makespan);
  CHECK(judged(shared, "approx_bp").schedule.approximate == judged(problem, "approx_bp").schedule.approximate);
}

TEST_CASE("what shares the result of norms changes nothing but what their backwards read", "[transform][norm]") {
  const Problem problem = normed_on_h200("deit_ti:batch=1"), shared = with_shared_norms(problem);
  REQUIRE(shared.graph.ops.size() == problem.graph.ops.size());
  CHECK(shared.graph.tensors == problem.graph.tensors);
  for (std::size_t o = 0; o < problem.graph.ops.size(); ++o) {
    Op was = problem.graph.ops[o];
    const Op& is = shared.graph.ops[o];
    if (was.kind == "native_layer_norm_backward") {
      REQUIRE(is.inputs.size() == was.inputs.size());
      const auto by_itself = std::ranges::find_if(problem.graph.ops, [&](const Op& op) {
        return op.kind == "native_layer_norm" && op.outputs[0] == is.inputs[1];
      });
      REQUIRE(by_itself != problem.graph.ops.end());
      CHECK(by_itself->inputs[0] == was.inputs[1]);
      was.inputs[1] = is.inputs[1];
    }
    CHECK(is == was);
  }
}

TEST_CASE("networks without layer norms have nothing to share", "[transform][norm]") {
  const std::variant<Problem, std::string> made = parse_spec("shared_norm|store_all", "test")[0].strategy->transform(
      normed_on_h200("resnet18:batch=1"), parse_spec("shared_norm", "test")[0].options);
  CHECK(std::get<std::string>(made) == "'resnet18:batch=1' has no layer norm that keeps its input");
}

}  // namespace
}  // namespace plimsoll
