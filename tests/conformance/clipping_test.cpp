// Clipping by the norm of all gradients: what it takes by hand, that every update comes after every gradient, who
// refuses it, and schedules that do it wrongly.

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "platforms/platform_file.h"
#include "sim/engine/event/event_engine.h"
#include "sim/engine/simgrid/simgrid_engine.h"
#include "sim/io/input_error.h"
#include "sim/io/schedule/schedule_file.h"
#include "sim/judge/check.h"
#include "sim/measure/metrics.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "tests/conformance/judged_pipelines.h"
#include "tests/conformance/measured_stages.h"
#include "tests/conformance/random_plan.h"
#include "tests/generate/problems.h"
#include "tests/random_case.h"
#include "traces/models/synthetic.h"

namespace plimsoll {
namespace {

/// Whether all updates start when all else that computes has ended.
bool updates_come_last(const Schedule& schedule, const Graph& graph, const Timeline& timeline) {
  Seconds backward_ends, update_starts{1e30};
  for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
    const OpId op = schedule.steps[s].op;
    if (op == no_op) continue;
    if (graph[op].phase == Phase::update) {
      update_starts = std::min(update_starts, timeline.steps[s].start);
    } else if (is_backward(graph[op].phase)) {
      backward_ends = std::max(backward_ends, timeline.steps[s].finish);
    }
  }
  return update_starts >= backward_ends;
}

// Gradients of 3 x 8 bytes: read, read again and written, 72 bytes at 16 B/s. Kernels for the norms and for scaling
// are one each of 0.01 s; `single` has one a parameter.
TEST_CASE("clipping by hand: gradients are read twice and written once more", "[clipping]") {
  for (const Optimizer optimizer : {Optimizer::sgd, Optimizer::adam}) {
    for (const auto& [kernels, launches] :
         {std::pair{UpdateKernels::fused, 2.0}, {UpdateKernels::foreach, 2.0}, {UpdateKernels::single, 6.0}}) {
      const ProblemOptions plain{.micro_batches = 2, .optimizer = optimizer, .update_kernels = kernels};
      ProblemOptions clipped = plain;
      clipped.clips_gradients = true;
      const Plan before = counted_plan(on_measured(3, 1, plain), "store_all");
      const Plan after = counted_plan(on_measured(3, 1, clipped), "store_all");
      CHECK(after.makespan.value - before.makespan.value == Approx(72.0 / 16 + launches * 0.01));
      CHECK(after.peak == before.peak);  // in place; one number a gradient is not counted
    }
  }
}

// The backward ends at 6 s, and the last gradient of 8 bytes is on the host at 6.5 s. The host moves 7 x 4 bytes a
// second; Adam moves 56 of each parameter, clipping 24 more. The last parameter of 8 bytes returns in 0.5 s.
TEST_CASE("clipping by hand: updates on a host wait for the last gradient", "[clipping]") {
  ProblemOptions options{.optimizer = Optimizer::adam};
  CHECK(counted_plan(on_measured(2, 1, options), "zero_offload").makespan.value == Approx(6 + 2 * 56.0 / 28 + 0.5));
  options.clips_gradients = true;
  CHECK(counted_plan(on_measured(2, 1, options), "zero_offload").makespan.value == Approx(6.5 + 2 * 80.0 / 28 + 0.5));
}

// Averages of 3 x 8 bytes, or in fp32 of 3 x 16: read and written, and the parameter or its copy is read.
TEST_CASE("averages of parameters by hand", "[clipping]") {
  for (const auto& [dtype, bytes] : {std::pair{"", 8}, {"bf16", 16}}) {
    for (const auto& [kernels, launches] :
         {std::pair{UpdateKernels::fused, 1.0}, {UpdateKernels::foreach, 1.0}, {UpdateKernels::single, 3.0}}) {
      const ProblemOptions plain{.micro_batches = 2, .optimizer = Optimizer::adam, .update_kernels = kernels};
      ProblemOptions averaged = plain;
      averaged.keeps_averages = true;
      for (const char* spec : {"store_all", "rotor", "chen_sqrt"}) {
        const Plan before = counted_plan(on_measured(3, 1, plain, dtype), spec);
        const Plan after = counted_plan(on_measured(3, 1, averaged, dtype), spec);
        CHECK(after.makespan.value - before.makespan.value == Approx(9.0 * bytes / 16 + launches * 0.01));
        CHECK(after.peak - before.peak == Bytes{3 * bytes});
      }
    }
  }
  const ProblemOptions both{.optimizer = Optimizer::adam, .keeps_averages = true, .clips_gradients = true};
  for (const char* spec : {"zero_offload", "zero_infinity", "deep_optimizer_states", "twinflow"}) {
    counted_plan(on_measured(4, 1, both, "bf16"), spec);
  }
}

TEST_CASE("who plans a graph by stages knows the averages of its parameters", "[clipping]") {
  const Platform platform = parse_platform(
      "format: plimsoll.platform.v1\nname: machine\nsource: made up\ndevices:\n  - {name: gpu, count: 2, memory: 1 GB, "
      "peak: {bf16: 10 TFLOPS}, memory_bandwidth: 100 GBps, launch_overhead: 1 us}\n"
      "links:\n  - {name: fast, between: [gpu, gpu], bandwidth: 20 GBps, latency: 1 us}\n",
      "machine.yaml");
  const auto on = [&](bool keeps_averages) {
    return problem_of(synthetic_model("transformer:layers=2,width=32,heads=4,sequence=32,vocabulary=32,view=graph"),
                      platform, {.micro_batches = 2, .optimizer = Optimizer::adam, .keeps_averages = keeps_averages});
  };
  for (const char* spec : {"chain|rotor", "data_parallel(ranks=2)|rotor", "megatron(tensor=2)|rotor"}) {
    INFO(spec);
    const std::vector<Pass> passes = parse_spec(spec, "test");
    const Problem plain = transformed(on(false), passes), averaged = transformed(on(true), passes);
    const auto averages = bytes_of_kind(averaged.graph, TensorKind::optimizer_state) -
                          bytes_of_kind(plain.graph, TensorKind::optimizer_state);
    CHECK(averages > Bytes{});
    const Bytes whole = std::get<Plan>(plan(plain, passes, std::nullopt)).peak;
    for (const std::int64_t tenths : {10, 9, 8}) {
      const Bytes budget{whole.count * tenths / 10};
      const PlanOutcome without = plan(plain, passes, budget), with = plan(averaged, passes, budget + averages);
      REQUIRE(without.index() == with.index());
      const Plan* made = std::get_if<Plan>(&with);
      CHECK((made != nullptr || tenths < 10));
      if (made == nullptr) continue;
      CHECK(made->peak - std::get<Plan>(without).peak == averages);
      judge_plan(averaged, *made, budget + averages);
    }
  }
}

TEST_CASE("other optimizers in Adam's place keep averages, too", "[clipping]") {
  const auto states_of = [](bool keeps_averages) {
    const Problem problem = on_measured(3, 1, {.optimizer = Optimizer::adam, .keeps_averages = keeps_averages}, "fp32");
    return bytes_of_kind(transformed(problem, parse_spec("adam8bit(least=1)", "test")).graph,
                         TensorKind::optimizer_state);
  };
  CHECK(states_of(true) - states_of(false) == Bytes{24});
}

TEST_CASE("no device updates before all devices have all gradients", "[clipping]") {
  const ProblemOptions options{.micro_batches = 4, .optimizer = Optimizer::adam, .clips_gradients = true};
  struct On {
    const char* spec;
    std::uint32_t devices;
  };
  for (const auto& [spec, devices] : {On{"gpipe", 2},
                                      {"1f1b", 4},
                                      {"chimera", 2},
                                      {"zero_offload", 1},
                                      {"twinflow(host=50%)", 1},
                                      {"deep_optimizer_states(stride=2)", 1},
                                      {"zero_infinity", 1}}) {
    INFO(spec);
    const Problem problem = on_measured(4, devices, options);
    const Plan made = counted_plan(problem, spec);
    CHECK(updates_come_last(made.schedule, problem.graph, simulate_event(made.schedule, problem.platform)));
  }
  std::size_t seen = 0;
  for (const RandomCase seed : random_cases(1, 120)) {
    const RandomPlan made = random_plan(3 * seed);
    if (!made.schedule.clips_gradients) continue;
    CHECK(check(made.schedule, made.problem.graph, made.problem.platform).empty());
    const Timeline event = simulate_event(made.schedule, made.problem.platform);
    CHECK(updates_come_last(made.schedule, made.problem.graph, event));
    const Timeline simgrid = simulate_simgrid(made.schedule, made.problem.platform);
    CHECK(simgrid.makespan.value == Approx(event.makespan.value).epsilon(1e-9));
    CHECK(simgrid.peaks == event.peaks);
    seen += made.schedule.streams.empty() ? 0 : 1;
  }
  if (all_cases()) CHECK(seen > 40);
}

TEST_CASE("updates within the backward cannot be clipped", "[clipping]") {
  const Problem problem = on_measured(3, 1, {.optimizer = Optimizer::adam, .clips_gradients = true});
  for (const char* spec : {"backward_updates", "zero_offload(overlap=on)"}) {
    CHECK_THROWS_WITH(plan(problem, parse_spec(spec, "test"), std::nullopt),
                      Catch::Contains("runs before all gradients are there, and is to wait until they are clipped"));
  }
}

TEST_CASE("what is clipped needs an optimizer that does not clip already", "[clipping]") {
  const auto refused = [](ProblemOptions options) {
    options.clips_gradients = true;
    const auto made = make_problem(even_chain(2), gpus({}), options);
    return std::holds_alternative<std::string>(made) ? std::get<std::string>(made) : "";
  };
  CHECK_THAT(refused({}), Catch::Contains("found none"));
  CHECK_THAT(refused({.optimizer = Optimizer::adam, .update_kernels = UpdateKernels::megatron}),
             Catch::Contains("'megatron' count the norm"));
  CHECK(refused({.optimizer = Optimizer::sgd}).empty());
}

TEST_CASE("check finds what was not clipped, or before the norm is known", "[clipping]") {
  const ProblemOptions options{.micro_batches = 2, .optimizer = Optimizer::adam, .clips_gradients = true};
  const Problem problem = on_measured(4, 2, options);
  const Schedule right = counted_plan(problem, "gpipe").schedule;
  const auto violations = [&](const Schedule& schedule) {
    std::set<std::string> names;
    for (const Violation& each : check(schedule, problem.graph, problem.platform)) names.insert(each.what);
    std::string text;
    for (const std::string& name : names) text += name + "\n";
    return text;
  };
  CHECK(violations(right).empty());
  CHECK(violations(parse_schedule(schedule_text(right, ""), "file")).empty());
  Schedule silent = right;  // the header does not say so
  silent.clips_gradients = false;
  CHECK(!violations(silent).empty());
  const Problem plain = on_measured(4, 2, {.micro_batches = 2, .optimizer = Optimizer::adam});
  Schedule without = counted_plan(plain, "gpipe").schedule;
  without.clips_gradients = true;
  CHECK_THAT(violations(without), Catch::Contains("updates with what was not clipped"));
  for (std::size_t s = 0; s < right.steps.size(); ++s) {
    const Step& step = right.steps[s];
    if (step.op != no_op || step.writes.count == 0 || step.reads.count > 0) continue;
    Schedule early = right;  // it does not wait for the other device's norm
    early.steps[s].waits.count = 0;
    CHECK_THAT(violations(early), Catch::Contains("scales gradients before the norm of"));
    Schedule slow = right;
    slow.steps[s].work.seconds = Seconds{1};
    CHECK_THAT(violations(slow), Catch::Contains("takes time of its own"));
    Schedule twice = right;
    twice.steps[s].reads = twice.steps[s].writes;  // it has only read them
    twice.steps[s].writes = {};
    CHECK_THAT(violations(twice), Catch::Contains("updates with what was not clipped"));
  }
}

}  // namespace
}  // namespace plimsoll
