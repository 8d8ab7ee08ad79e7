// The parts of an iteration's time: two examples by hand, and what must hold of any schedule in both engines.

#include "sim/measure/time_parts.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "sim/engine/event/event_engine.h"
#include "sim/engine/simgrid/simgrid_engine.h"
#include "sim/measure/host_issue.h"
#include "sim/measure/metrics.h"
#include "strategies/compose/plan.h"
#include "tests/conformance/random_plan.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"
#include "tests/strategies/pipelining/equal_pipelines.h"

namespace plimsoll {
namespace {

double part_of(const std::vector<TimePart>& parts, TimePartKind kind, const std::string& axis = "") {
  const auto found =
      std::ranges::find_if(parts, [&](const TimePart& each) { return each.kind == kind && each.axis == axis; });
  return found == parts.end() ? 0 : found->time.value;
}

bool has_step(const Schedule& schedule, auto says) {
  return std::ranges::any_of(schedule.steps, says);
}

/// Exchanges between ops of all devices, whatever the axis.
double exposed_in(const std::vector<TimePart>& parts, const Schedule& schedule) {
  double sum = 0;
  for (const TimePart& each : parts) {
    if (each.kind == TimePartKind::exchange && each.axis != "pipeline") sum += each.time.value;
  }
  return sum * static_cast<double>(devices_used(schedule));
}

void check_time_parts(const Problem& problem, const Schedule& schedule, const Timeline& timeline) {
  using enum TimePartKind;
  const std::vector<TimePart> parts = time_parts(problem, schedule, timeline);
  const double makespan = timeline.makespan.value, rounding = 1e-9 * makespan;
  double sum = 0;
  for (const TimePart& each : parts) {
    CAPTURE(written(each.kind), each.axis);
    CHECK(each.time.value >= 0);
    sum += each.time.value;
  }
  CHECK(sum == Approx(makespan).epsilon(1e-9));
  if (devices_used(schedule) == 1) {
    for (const TimePartKind kind : {imbalance, fill_and_drain, waits}) CHECK(part_of(parts, kind) <= rounding);
  }
  const auto none_of = [&](auto kinds) { return !has_step(schedule, [&](const Step& step) { return kinds(step); }); };
  if (none_of([](const Step& step) { return step.kind == StepKind::recompute; })) {
    CHECK(part_of(parts, recomputation) == 0);
  }
  if (none_of([](const Step& step) { return step.kind == StepKind::update; })) CHECK(part_of(parts, updates) == 0);
  if (none_of([](const Step& step) { return step.kind == StepKind::send; })) {
    CHECK(part_of(parts, exchange, "pipeline") == 0);
  }
  if (none_of([](const Step& step) { return step.work.is_transfer() && step.kind != StepKind::send; })) {
    CHECK(part_of(parts, copies) == 0);
  }
  const auto is_measured = [&](const Step& step) { return step.kind != StepKind::collective; };
  if (std::ranges::all_of(schedule.steps, is_measured)) {
    CHECK(exposed_in(parts, schedule) ==
          Approx(measure(problem, schedule, timeline).exposed_exchange.value).epsilon(1e-9).margin(rounding));
  }
}

// Two stages and two micro-batches: forward and backward 1 s and 2 s, a transfer 0.5 s. The first device computes in
// 0-2, 5-7 and 8-10, and receives in 4.5-5 and 7.5-8: 2-4.5 is before its first backward, 7-7.5 after its last forward.
// The second one computes in 1.5-7.5, and receives in 1-1.5 beside nothing.
TEST_CASE("the parts of two stages' time are those that one draws by hand", "[time_parts]") {
  using enum TimePartKind;
  const Problem problem = problem_of(equal_stages(2, {.f = 1, .b = 1, .w = 1}),
                                     gpus({.count = 2, .peer_latency = Seconds{0.5}}), {.micro_batches = 2});
  const auto parts_by = [&](const std::string& spec) {
    const Plan made = std::get<Plan>(plan(problem, parse_spec(spec, "test"), std::nullopt));
    return time_parts(problem, made.schedule, simulate_event(made.schedule, problem.platform));
  };
  const std::vector<TimePart> parts = parts_by("1f1b");
  CHECK(part_of(parts, kernels) == Approx(6));
  CHECK(part_of(parts, exchange, "pipeline") == Approx(0.75));
  CHECK(part_of(parts, imbalance) == Approx(0.25));
  CHECK(part_of(parts, fill_and_drain) == Approx(3));
  CHECK(part_of(parts, waits) == 0);
  // Where sends block, the first device also waits for its own in 1-1.5 and 2.5-3: it computes in 0-1, 1.5-2.5, ...
  CHECK(part_of(parts_by("1f1b(sends=blocking)"), exchange, "pipeline") > 1);
}

// 10 operations at 5 a second, 12 bytes at 4 a second and a launch of 0.5 s: 2 s at the peak, 1 s more since the memory
// is slower, and the launch.
TEST_CASE("the parts of a kernel's time are its peak, its roofline and its launch", "[time_parts]") {
  using enum TimePartKind;
  Graph graph = row_of_ops(3);
  graph.source.dtype = "fp32";
  for (Op& op : graph.ops) {
    op.duration.reset();
    op.flops = Flops{10};
    op.bytes_moved = Bytes{12};
  }
  Platform platform = gpus({.count = 1});
  Device& device = platform.devices.front();
  device.takes_trace_times = false;
  device.peak["fp32"] = FlopsPerSecond{5};
  device.memory_bandwidth = BytesPerSecond{4};
  device.launch_overhead = Seconds{0.5};
  const Problem problem = problem_of(graph, platform);
  const Plan made = std::get<Plan>(plan(problem, parse_spec("store_all", "test"), std::nullopt));
  const Timeline timeline = simulate_event(made.schedule, platform);
  const std::vector<TimePart> parts = time_parts(problem, made.schedule, timeline);
  const double ops = static_cast<double>(problem.graph.ops.size());
  CHECK(timeline.makespan.value == Approx(3.5 * ops));
  CHECK(part_of(parts, ideal) == Approx(2 * ops));
  CHECK(part_of(parts, kernels) == Approx(ops));
  CHECK(part_of(parts, launches) == Approx(0.5 * ops));
}

TEST_CASE("the parts of any plan's time sum to its makespan in both engines", "[time_parts]") {
  std::size_t with_bubbles = 0;
  for (const RandomCase seed : fewer_cases(1, 400)) {
    Random random(seed);
    RandomPlan made = random_plan(seed);
    const Timeline timeline = simulate_event(made.schedule, made.problem.platform);
    check_time_parts(made.problem, made.schedule, timeline);
    check_time_parts(made.problem, made.schedule, simulate_simgrid(made.schedule, made.problem.platform));
    if (devices_used(made.schedule) > 1) ++with_bubbles;
    for (Op& op : made.problem.graph.ops) op.kernels = random.between(0, 3);
    for (Device& device : made.problem.platform.devices) device.host_launch = Seconds{0.25 * random.between(0, 12)};
    const Retimed issued = issued_by_hosts(made.schedule, made.problem);
    check_time_parts(made.problem, made.schedule,
                     of_first(issued, simulate_event(issued.schedule, made.problem.platform)));
  }
  if (all_cases()) CHECK(with_bubbles > cases_of(std::size_t{40}));
}

}  // namespace
}  // namespace plimsoll
