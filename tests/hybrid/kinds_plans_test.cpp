// Hybrid strategies on graphs whose ops say nothing of how they split: references of eager PyTorch, graphs that the
// exporter measured, networks. Each rank's graph has passed check_split; plans are judged here.

#include <catch2/catch.hpp>

#include "platforms/platform_file.h"
#include "sim/core/collective_op.h"
#include "sim/engine/event/event_engine.h"
#include "sim/judge/check.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "traces/trace_file.h"
#include "validate/networks/networks.h"

using namespace plimsoll;

namespace {

Graph graph_named(const std::string& reference) {
  if (is_network(reference)) return named_network(reference).network.graph;
  return std::get<Graph>(load_trace(reference).model);
}

/// Of one rank, which all judges have passed.
Problem planned_rank(const std::string& reference, const std::string& spec) {
  const std::vector<Pass> passes = parse_spec(spec, "test");
  auto made = make_problem(graph_named(reference), load_platform("h100_sxm_8"),
                           {.micro_batches = 8, .optimizer = Optimizer::adam, .backward = backward_for(passes)});
  REQUIRE(std::holds_alternative<Problem>(made));
  Problem problem = transformed(std::get<Problem>(std::move(made)), passes);
  PlanOutcome outcome = plan(problem, passes, std::nullopt);
  REQUIRE(std::holds_alternative<Plan>(outcome));
  const Plan& planned = std::get<Plan>(outcome);
  for (const Violation& found : check(planned.schedule, problem.graph, problem.platform)) FAIL_CHECK(found.what);
  CHECK(simulate_event(planned.schedule, problem.platform).makespan.value == Approx(planned.makespan.value));
  return problem;
}

double flops_of(const Graph& graph) {
  double sum = 0;
  for (const Op& op : graph.ops) sum += op.flops ? op.flops->count : 0;
  return sum;
}

}  // namespace

TEST_CASE("hybrid strategies plan graphs whose ops split by their kind", "[hybrid]") {
  const std::string reference =
      GENERATE("resnet18:batch=8", "resnet18_ops_b8_cpu", "gpt4_ops_w256_t128_b4_cpu", "resmlp_s12:batch=8",
               "mlp:layers=4,width=2048,batch=512,classes=16,view=graph",
               "gpt:layers=2,width=512,heads=8,sequence=256,batch=16,vocabulary=64,view=graph");
  const double whole = flops_of(graph_named(reference));
  CAPTURE(reference);
  for (const char* spec : {"data_parallel", "zero1", "zero2", "zero3"}) {
    CAPTURE(spec);
    const Problem problem = planned_rank(reference, spec);
    CHECK(problem.micro_batches == 1);
    CHECK(flops_of(problem.graph) == Approx(whole));
  }
  for (const char* spec :
       {"tofu(devices=4)", "optcnn(devices=4)", "hsm2dl(devices=4)", "hsm2dl(devices=4)|zero1(ranks=2)"}) {
    CAPTURE(spec);
    const Problem problem = planned_rank(reference, spec);
    // Ranks share out the work, whatever they exchange: nothing of weight is left whole.
    CHECK(flops_of(problem.graph) < 0.6 * whole);
    CHECK(flops_of(problem.graph) >= 0.25 * whole * (1 - 1e-9));
  }
}

TEST_CASE("graphs of networks train in replicas where stages are planned, too", "[hybrid]") {
  for (const char* reference :
       {"resnet18:batch=8", "gpt:layers=2,width=64,heads=8,sequence=16,batch=8,vocabulary=64,view=graph",
        "mlp:layers=4,width=64,batch=16,classes=16,view=graph"}) {
    for (const char* spec : {"data_parallel|rotor", "zero2|rotor", "zero3|rotor"}) {
      CAPTURE(reference, spec);
      CHECK(planned_rank(reference, spec).chain);
    }
  }
}

TEST_CASE("alpa's program plans graphs whose ops split by their kind", "[hybrid]") {
  for (const char* reference : {"mlp:layers=4,width=64,batch=16,classes=16,view=graph", "resnet18:batch=8"}) {
    CAPTURE(reference);
    planned_rank(reference, "alpa(devices=2,seconds=20)");
  }
}

TEST_CASE("megatron cuts networks within their blocks", "[hybrid]") {
  const std::string gpt = "gpt:layers=2,width=64,heads=8,sequence=16,batch=8,vocabulary=64,view=graph";
  const Problem problem = planned_rank(gpt, "megatron(tensor=4)");
  std::size_t sums = 0;
  for (const Op& op : problem.graph.ops) {
    const auto what = collective_of(op);
    if (what && op.phase == Phase::forward && what->kind == CollectiveKind::all_reduce) ++sums;
  }
  CHECK(sums == 2 * 2);  // one behind each attention and each MLP
}
