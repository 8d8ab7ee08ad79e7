// What every strategy obeys, for those that split a model among ranks: on 1, 2 and 4 devices, also where links are
// unequal.

#include <catch2/catch.hpp>

#include <algorithm>

#include "platforms/platform_file.h"
#include "sim/engine/event/event_engine.h"
#include "sim/engine/simgrid/simgrid_engine.h"
#include "sim/io/input_error.h"
#include "sim/io/schedule/schedule_file.h"
#include "sim/judge/check.h"
#include "sim/measure/lower_bounds.h"
#include "strategies/compose/chosen_width.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "strategies/list.h"
#include "traces/models/synthetic.h"

using namespace plimsoll;

namespace {

Platform machine(int nodes, int devices, double between_nodes) {
  std::string text =
      "format: plimsoll.platform.v1\nname: machine\nsource: made up\nnodes: " + std::to_string(nodes) +
      "\ndevices:\n  - {name: gpu, count: " + std::to_string(devices) +
      ", memory: 1 GB, peak: {bf16: 10 TFLOPS}, memory_bandwidth: 100 GBps, launch_overhead: 1 us}\n"
      "memories:\n  - {name: host, size: 100 GB}\n"
      "switches:\n  - {name: inside}\n  - {name: fabric, scope: cluster}\n"
      "links:\n  - {name: fast, between: [gpu, inside], bandwidth: 20 GBps, latency: 1 us}\n"
      "  - {name: slow, between: [inside, fabric], bandwidth: " +
      std::to_string(between_nodes) +
      " GBps, latency: 5 us}\n  - {name: bus, between: [gpu, host], bandwidth: 10 GBps, latency: 2 us}\n";
  return parse_platform(text, "machine.yaml");
}

void judge_all(const Problem& problem, std::span<const Pass> passes) {
  const PlanOutcome unlimited = plan(problem, passes, std::nullopt);
  REQUIRE(std::holds_alternative<Plan>(unlimited));
  const Plan& free = std::get<Plan>(unlimited);
  const LowerBounds bounds = lower_bounds(problem, problem.platform.devices.size(), Stays::nothing);
  const auto judge_one = [&](const Plan& made, std::optional<Bytes> budget) {
    for (const Violation& found : check(made.schedule, problem.graph, problem.platform)) FAIL_CHECK(found.what);
    const Timeline event = simulate_event(made.schedule, problem.platform);
    CHECK(event.makespan.value ==
          Approx(simulate_simgrid(made.schedule, problem.platform).makespan.value).epsilon(1e-9));
    CHECK(event.makespan.value == Approx(made.makespan.value).epsilon(1e-9));
    Bytes peak;
    for (const Device& device : problem.platform.devices) peak = std::max(peak, event.peaks[device.memory.index].bytes);
    CHECK(peak == made.peak);
    if (budget) CHECK(peak <= *budget);
    CHECK(event.makespan.value >= bounds.time().value * (1 - 1e-9));
    CHECK(peak >= bounds.memory);
  };
  judge_one(free, std::nullopt);
  const PlanOutcome again = plan(problem, passes, std::nullopt);
  CHECK(schedule_text(free.schedule, "") == schedule_text(std::get<Plan>(again).schedule, ""));
  // A pipeline that is cut by what fits may be faster by chance where it is asked by itself; never where asked
  // together.
  const auto is_pipeline = [](const Pass& pass) {
    return pass.strategy->family == Family::hybrid && pass.strategy->partitions();
  };
  const bool cuts_by_budget = std::ranges::any_of(passes, is_pipeline);
  const std::vector<std::optional<Bytes>> budgets{std::nullopt, Bytes{free.peak.count * 9 / 10},
                                                  Bytes{free.peak.count * 7 / 10}};
  const std::vector<PlanOutcome> together = plan(problem, passes, budgets);
  for (const PlanOutcome& each : together) {
    const Plan* made = std::get_if<Plan>(&each);
    if (made == nullptr) continue;
    CHECK(made->makespan.value >= std::get<Plan>(together.front()).makespan.value * (1 - 1e-9));
  }
  for (const std::int64_t percent : {90, 70, 1}) {
    const Bytes budget{free.peak.count * percent / 100};
    const PlanOutcome outcome = plan(problem, passes, budget);
    if (const Plan* made = std::get_if<Plan>(&outcome)) {
      judge_one(*made, budget);
      if (!cuts_by_budget) CHECK(made->makespan.value >= free.makespan.value * (1 - 1e-9));
      continue;
    }
    const Infeasible& none = std::get<Infeasible>(outcome);
    REQUIRE(none.smallest);
    CHECK(*none.smallest > budget);
    const PlanOutcome smallest = plan(problem, passes, *none.smallest);
    REQUIRE(std::holds_alternative<Plan>(smallest));
    judge_one(std::get<Plan>(smallest), *none.smallest);
  }
}

}  // namespace

TEST_CASE("every hybrid strategy keeps what strategies promise on 1, 2 and 4 devices", "[hybrid][turn-1]") {
  struct Shape {
    int nodes, devices;
    double between_nodes;
  };
  for (const Shape& shape : {Shape{1, 1, 20}, Shape{1, 2, 20}, Shape{2, 1, 3}, Shape{1, 4, 20}, Shape{2, 2, 3}}) {
    const Platform platform = machine(shape.nodes, shape.devices, shape.between_nodes);
    for (const StrategyInfo* strategy : strategies()) {
      if (strategy->family != Family::hybrid || strategy == &cluster_strategy) continue;  // a cluster is asked alone
      for (const char* behind : {"", "|greedy_recompute", "|1f1b(stages=1)|rotor"}) {
        const bool is_pipeline = strategy->partitions();  // which stands for all devices, not for one
        if (is_pipeline && behind != std::string_view()) behind = "|rotor";
        const std::string spec = std::string(strategy->name) + behind;
        CAPTURE(spec, shape.nodes, shape.devices);
        const std::vector<Pass> passes = parse_spec(spec, "test");
        const char* model = strategy == &expert_strategy
                                ? "llama:layers=1,width=32,heads=4,kv_heads=4,inner=32,sequence=16,batch=4,"
                                  "vocabulary=32,experts=4"
                                : "transformer:layers=1,width=32,heads=4,sequence=16,batch=4,vocabulary=32,view=graph";
        auto made =
            make_problem(synthetic_model(model), platform, {.micro_batches = 8, .optimizer = Optimizer::momentum});
        REQUIRE(std::holds_alternative<Problem>(made));
        const Problem problem = transformed(std::get<Problem>(std::move(made)), passes);
        const bool is_on_all = !is_pipeline && !leaves_width_open(passes);
        if (is_on_all) CHECK(problem.platform.devices.size() == 1);
        judge_all(problem, passes);
      }
    }
  }
}

TEST_CASE("an axis over unequal links is told", "[hybrid]") {
  const auto notes_of = [](int nodes, int devices, const char* spec) {
    const std::vector<Pass> passes = parse_spec(spec, "test");
    auto made = make_problem(transformer_chain({.layers = 1}), machine(nodes, devices, 2), {.micro_batches = 4});
    return transformed(std::get<Problem>(std::move(made)), passes).notes;
  };
  CHECK(notes_of(1, 4, "data_parallel").empty());
  REQUIRE(notes_of(2, 2, "data_parallel").size() == 1);
  CHECK(notes_of(2, 2, "data_parallel").front() ==
        "axis 'data' goes over links of unequal bandwidth: the slowest of them, 10 times slower than the fastest, "
        "set the pace");
}
