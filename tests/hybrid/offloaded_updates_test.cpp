// Ranks that train together, and updates on the host, on a disk's way, streamed or within the backward: a gradient is
// summed over the ranks before it leaves or is used, and what each rank has updated a share of is handed out.

#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <string>

#include "platforms/platform_file.h"
#include "sim/core/collective_op.h"
#include "sim/engine/event/event_engine.h"
#include "sim/io/input_error.h"
#include "sim/judge/check.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "traces/models/synthetic.h"

using namespace plimsoll;

namespace {

const char* const two_gpus =
    "format: plimsoll.platform.v1\nname: machine\nsource: made up\ndevices:\n  - {name: gpu, count: 2, memory: 1 GB, "
    "peak: {bf16: 10 TFLOPS}, memory_bandwidth: 100 GBps, launch_overhead: 1 us}\nmemories:\n  - {name: host, size: "
    "100 GB, bandwidth: 50 GBps, adam: 5 GBps}\n  - {name: nvme, size: 1 TB}\nlinks:\n  - {name: bus, between: [gpu, "
    "host], bandwidth: 10 GBps, latency: 2 us}\n  - {name: fast, between: [gpu, gpu], bandwidth: 20 GBps, latency: 1 "
    "us}\n  - {name: m2, between: [host, nvme], bandwidth: 2 GBps, latency: 0 s, duplex: half}\n";

Problem problem_for(std::span<const Pass> passes, bool on_graph, Gradients gradients = Gradients::fresh,
                    Optimizer optimizer = Optimizer::adam) {
  const std::string model = "transformer:layers=1,width=32,heads=4,sequence=16,batch=2,vocabulary=32,dtype=bf16,view=" +
                            std::string(on_graph ? "graph" : "chain");
  auto made = make_problem(
      synthetic_model(model), parse_platform(two_gpus, "machine.yaml"),
      {.micro_batches = 4, .optimizer = optimizer, .gradients = gradients, .backward = backward_for(passes)});
  return transformed(std::get<Problem>(std::move(made)), passes);
}

/// Every exchange of a gradient after the iteration's backward ends before the gradient leaves its device or is used.
void check_sums_come_first(const Problem& problem, const Schedule& schedule, const Timeline& timeline) {
  std::map<TensorId, Seconds> summed;
  for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
    const Step& step = schedule.steps[s];
    if (step.op == no_op || problem.graph[step.op].phase != Phase::update || !collective_of(problem.graph[step.op]))
      continue;
    for (const TensorId t : problem.graph[step.op].inputs) {
      if (problem.graph[t].kind != TensorKind::parameter_gradient) continue;
      summed[t] = std::max(summed[t], timeline.steps[s].finish);
    }
  }
  for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
    const Step& step = schedule.steps[s];
    const bool updates =
        step.op != no_op && problem.graph[step.op].phase == Phase::update && !collective_of(problem.graph[step.op]);
    if (!updates && !step.work.is_transfer()) continue;
    for (const BufferId b : schedule.buffers_in(step.reads)) {
      const auto found = summed.find(schedule[b].tensor);
      if (found != summed.end()) CHECK(timeline.steps[s].start >= found->second);
    }
  }
}

/// A parameter that is at home elsewhere, and was handed out on the device, goes back there.
void check_handed_out_go_home(const Problem& problem, const Schedule& schedule) {
  for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
    const Step& step = schedule.steps[s];
    const bool is_exchange = step.op != no_op && problem.graph[step.op].phase == Phase::update &&
                             collective_of(problem.graph[step.op]).has_value();
    for (const BufferId b : schedule.buffers_in(step.reads)) {
      if (!is_exchange || problem.graph[schedule[b].tensor].kind != TensorKind::parameter) continue;
      const bool is_at_home = std::ranges::any_of(schedule.resident, [&](BufferId home) { return home == b; });
      bool goes_back = false;
      for (std::size_t later = s + 1; later < schedule.steps.size(); ++later) {
        const auto reads = schedule.buffers_in(schedule.steps[later].reads);
        goes_back |= schedule.steps[later].work.is_transfer() && std::ranges::find(reads, b) != reads.end();
      }
      CHECK((is_at_home || goes_back));
    }
  }
}

void judge_updates(const Problem& problem, std::span<const Pass> passes) {
  const PlanOutcome outcome = plan(problem, passes, std::nullopt);
  REQUIRE(std::holds_alternative<Plan>(outcome));
  const Plan& made = std::get<Plan>(outcome);
  for (const Violation& found : check(made.schedule, problem.graph, problem.platform)) FAIL_CHECK(found.what);
  const Timeline timeline = simulate_event(made.schedule, problem.platform);
  CHECK(timeline.makespan.value == Approx(made.makespan.value).epsilon(1e-9));
  Bytes peak;
  for (const Device& device : problem.platform.devices)
    peak = std::max(peak, timeline.peaks[device.memory.index].bytes);
  CHECK(peak == made.peak);
  check_sums_come_first(problem, made.schedule, timeline);
  check_handed_out_go_home(problem, made.schedule);
}

TEST_CASE("gradients of ranks that train together are summed before they leave or are used", "[hybrid][eleventh-3]") {
  for (const char* hybrid : {"data_parallel", "data_parallel(buckets=off)", "zero1", "zero2", "zero3"}) {
    for (const char* updates : {"backward_updates", "zero_offload", "zero_offload(overlap=on)", "twinflow(host=50%)",
                                "zero_infinity", "deep_optimizer_states(stride=2)", "demand_layering(lead=1)",
                                "demand_layering(lead=1, from=disk)", "offmate(steps=2)"}) {
      for (const bool on_graph : {false, true}) {
        for (const Gradients gradients : {Gradients::fresh, Gradients::existing}) {
          const std::string spec = std::string(hybrid) + "|" + updates;
          CAPTURE(spec, on_graph, gradients == Gradients::existing);
          const std::vector<Pass> passes = parse_spec(spec, "test");
          judge_updates(problem_for(passes, on_graph, gradients), passes);
        }
      }
    }
  }
}

TEST_CASE("so they are in the stages of pipelines", "[hybrid]") {
  for (const char* spec :
       {"megatron(tensor=2)|1f1b(stages=1)|zero_offload", "zero1|1f1b(stages=1)|demand_layering(lead=1)",
        "data_parallel(ranks=1)|1f1b(stages=2)|zero_infinity", "megatron(tensor=2,sequence=yes)|offmate(steps=2)",
        // parameters of a stage have one gradient together, and one update
        "zero2|1f1b(stages=1)|zero_offload", "megatron(tensor=2,main_gradients=fp32)|rotor|zero_offload(overlap=on)",
        "megatron(tensor=2,main_gradients=fp32)|1f1b(stages=1)|backward_updates"}) {
    CAPTURE(spec);
    const std::vector<Pass> passes = parse_spec(spec, "test");
    judge_updates(problem_for(passes, true), passes);
  }
}

TEST_CASE("without updates gradients are summed before they leave, and nothing places updates", "[hybrid]") {
  for (const bool on_graph : {false, true}) {
    for (const char* spec : {"data_parallel|demand_layering(lead=1)", "data_parallel|offmate(steps=2)"}) {
      CAPTURE(spec, on_graph);
      const std::vector<Pass> passes = parse_spec(spec, "test");
      judge_updates(problem_for(passes, on_graph, Gradients::fresh, Optimizer::none), passes);
    }
    for (const char* spec : {"data_parallel|backward_updates", "data_parallel|zero_offload"}) {
      CAPTURE(spec, on_graph);
      const std::vector<Pass> passes = parse_spec(spec, "test");
      const Problem problem = problem_for(passes, on_graph, Gradients::fresh, Optimizer::none);
      CHECK_THROWS_AS(plan(problem, passes, std::nullopt), InputError);
    }
  }
}

TEST_CASE("a gradient that is an approximation is one when it has been summed", "[hybrid]") {
  for (const char* spec :
       {"data_parallel|quantize(tensors=all)|zero_offload", "zero1|quantize(tensors=all)|zero_offload"}) {
    CAPTURE(spec);
    const std::vector<Pass> passes = parse_spec(spec, "test");
    judge_updates(problem_for(passes, true), passes);
  }
}

TEST_CASE("gradients that exist from the start are summed over ranks, and stay", "[hybrid]") {
  for (const char* spec :
       {"data_parallel", "zero1", "megatron(tensor=2,sequence=yes)", "data_parallel|1f1b(stages=1)"}) {
    CAPTURE(spec);
    const std::vector<Pass> passes = parse_spec(spec, "test");
    judge_updates(problem_for(passes, true, Gradients::existing), passes);
  }
}

}  // namespace
