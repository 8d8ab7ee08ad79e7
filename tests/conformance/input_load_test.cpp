// What it takes for the network's input to appear: in the first run of who reads it, and not when that runs again.

#include <algorithm>
#include <catch2/catch.hpp>

#include "sim/engine/event/event_engine.h"
#include "sim/judge/check.h"
#include "sim/model/input_loads.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "tests/generate/problems.h"

namespace plimsoll {
namespace {

Chain loading_chain() {
  Chain chain = even_chain(3);
  chain.stages[0].load = Seconds{0.25};
  return chain;
}

std::vector<double> runs_of(const Schedule& schedule, OpId op) {
  std::vector<double> seconds;
  for (const Step& step : schedule.steps) {
    if (step.op == op) seconds.push_back(step.work.seconds.value);
  }
  return seconds;
}

TEST_CASE("an op that runs again takes its time without loading, for planner, schedule and judge", "[loads]") {
  const Problem problem = problem_of(loading_chain(), gpus({}), {.micro_batches = 2});
  for (const char* spec : {"store_all", "full_recompute", "revolve"}) {
    INFO(spec);
    const Plan made = std::get<Plan>(plan(problem, parse_spec(spec, "test"), std::nullopt));
    const std::vector<double> runs = runs_of(made.schedule, problem.index->forward[0]);
    if (spec == std::string("full_recompute")) CHECK(runs == std::vector<double>{1, 0.75, 1, 0.75});
    CHECK(made.makespan == simulate_event(made.schedule, problem.platform).makespan);
    CHECK(check(made.schedule, problem.graph, problem.platform).empty());
    if (runs.size() == 2) continue;
    Schedule wrong = made.schedule;
    for (Step& step : wrong.steps) {
      if (step.op == problem.index->forward[0]) step.work.seconds = Seconds{1};
    }
    CHECK(!check(wrong, problem.graph, problem.platform).empty());
  }
}

TEST_CASE("elsewhere than measured nothing is known of loading", "[loads]") {
  Chain chain = loading_chain();
  chain.source = {.kind = Source::Kind::measured, .device = "A", .dtype = "fp32"};
  for (Stage& stage : chain.stages) {
    stage.forward_flops = stage.backward_flops = Flops{8};
    stage.forward_bytes_moved = stage.backward_bytes_moved = Bytes{8};
  }
  Platform other = gpus({});
  other.devices[0].takes_trace_times = false;
  other.devices[0].model = "B";
  other.devices[0].peak["fp32"] = {8};
  other.devices[0].memory_bandwidth = BytesPerSecond{8};
  const Problem problem = problem_of(chain, other);
  const Plan made = std::get<Plan>(plan(problem, parse_spec("full_recompute", "test"), std::nullopt));
  CHECK(runs_of(made.schedule, problem.index->forward[0]) == std::vector<double>{1, 1});
  CHECK(check(made.schedule, problem.graph, other).empty());
}

TEST_CASE("traces that our CUDA backend measured before it stated loading hold a copy of the input", "[loads]") {
  const auto load = [](const char* clock, const char* library) {
    Chain chain = even_chain(2);
    chain.source = {.kind = Source::Kind::measured, .device = "A", .dtype = "fp32"};
    chain.source.notes = {{"library", library}, {"clock", clock}};
    Platform platform = gpus({.to_host = BytesPerSecond{100}});
    platform.devices[0].takes_trace_times = true;
    const Problem problem = problem_of(chain, platform);
    double bytes = 0;
    for (const Tensor& t : problem.graph.tensors)
      bytes += t.kind == TensorKind::input ? static_cast<double>(t.bytes.count) : 0;
    REQUIRE(bytes > 0);
    return problem.graph.ops[0].load.value / (bytes / 100);
  };
  const char* before = "from one op's end to the next one's, in place";
  CHECK(load(before, "CUDA 13.0 (driver for 13.0)") == Approx(1));
  CHECK(load(loads_apart, "CUDA 13.0 (driver for 13.0)") == 0);
  CHECK(load(before, "oneDNN 2.6.3") == 0);  // there it is a copy in memory, and was not told apart either
}

}  // namespace
}  // namespace plimsoll
