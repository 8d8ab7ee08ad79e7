// Hosts that issue kernels ahead of their devices: against a walk along one device's steps, in both engines, and what
// must hold of any schedule.

#include "sim/measure/host_issue.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "sim/engine/event/event_engine.h"
#include "sim/engine/simgrid/simgrid_engine.h"
#include "strategies/compose/plan.h"
#include "tests/conformance/random_plan.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"
#include "tests/strategies/pipelining/equal_pipelines.h"

namespace plimsoll {
namespace {

/// Ops of 0 to 3 kernels, on devices whose hosts take 0 to 3 s for each.
void with_hosts(Problem& problem, Random& random) {
  for (Op& op : problem.graph.ops) op.kernels = random.between(0, 3);
  for (Device& device : problem.platform.devices) device.host_launch = Seconds{0.25 * random.between(0, 12)};
}

Timeline with_issue(const Problem& problem, const Schedule& schedule) {
  const Retimed issued = issued_by_hosts(schedule, problem);
  return of_first(issued, simulate_event(issued.schedule, problem.platform));
}

TEST_CASE("on one device each kernel begins when it is issued and the one before it has ended", "[issue]") {
  for (const RandomCase seed : fewer_cases(1, 200)) {
    Random random(seed);
    Problem problem = problem_of(random_graph(seed, random.between(3, 12)), gpus({.count = 1}),
                                 {.micro_batches = random.between(1, 3)});
    with_hosts(problem, random);
    const Plan made = std::get<Plan>(plan(problem, parse_spec("store_all", "test"), std::nullopt));
    double issued = 0, ended = 0;
    for (const Step& step : made.schedule.steps) {
      REQUIRE(step.op != no_op);
      issued += *problem.graph[step.op].kernels * problem.platform.devices[0].host_launch.value;
      ended = std::max(issued, ended) + step.work.seconds.value;
    }
    const Retimed of = issued_by_hosts(made.schedule, problem);
    CHECK(simulate_event(of.schedule, problem.platform).makespan.value == Approx(ended));
    CHECK(simulate_simgrid(of.schedule, problem.platform).makespan.value == Approx(ended));
    CHECK(longest_issue(made.schedule, problem).value == Approx(issued));
  }
}

TEST_CASE("no step begins before its host has issued it, nor before what it waits for", "[issue]") {
  std::size_t later = 0;
  for (const RandomCase seed : fewer_cases(1, 300)) {
    Random random(seed);
    RandomPlan made = random_plan(seed);
    const Timeline before = simulate_event(made.schedule, made.problem.platform);
    for (Op& op : made.problem.graph.ops) op.kernels = random.between(0, 3);
    CHECK(with_issue(made.problem, made.schedule).makespan == before.makespan);  // hosts that take no time
    with_hosts(made.problem, random);
    const Timeline timeline = with_issue(made.problem, made.schedule);
    std::vector<double> issued(made.problem.platform.devices.size(), 0);
    for (std::size_t s = 0; s < made.schedule.steps.size(); ++s) {
      const Step& step = made.schedule.steps[s];
      const Stream& stream = made.schedule[step.stream];
      const double start = timeline.steps[s].start.value, rounding = 1e-9 * (1 + start);
      for (const StepId wait : made.schedule.waits_of(step)) {
        CHECK(start >= timeline.steps[wait.index].finish.value - rounding);
      }
      if (step.op == no_op || !(stream.way == way::compute || stream.way == way::network)) continue;
      double& host = issued[stream.device.index];
      host +=
          *made.problem.graph[step.op].kernels * made.problem.platform.devices[stream.device.index].host_launch.value;
      CHECK(start >= host - rounding);
    }
    CHECK(timeline.makespan >= (1 - 1e-12) * longest_issue(made.schedule, made.problem));
    const Retimed of = issued_by_hosts(made.schedule, made.problem);
    const double simgrid = simulate_simgrid(of.schedule, made.problem.platform).makespan.value;
    CHECK(timeline.makespan.value == Approx(simgrid).epsilon(1e-9));
    later += timeline.makespan > before.makespan ? 1 : 0;
  }
  if (all_cases()) CHECK(later > cases_of(std::size_t{60}));
}

/// Two stages and two micro-batches: forward and backward 1 s and 2 s, a transfer 0.5 s, a host 0.25 s a step.
double two_stages(const std::string& spec) {
  const std::vector<Pass> passes = parse_spec(spec, "test");
  Problem problem = problem_of(equal_stages(2, {.f = 1, .b = 1, .w = 1}),
                               gpus({.count = 2, .peer_latency = Seconds{0.5}}), {.micro_batches = 2});
  for (Op& op : problem.graph.ops) op.kernels = op.duration->value > 0 ? 1 : 0;
  for (Device& device : problem.platform.devices) device.host_launch = Seconds{0.25};
  const Plan made = std::get<Plan>(plan(problem, passes, std::nullopt));
  return with_issue(problem, made.schedule).makespan.value;
}

// Forwards and backwards of the first device end at 1.25, 2.25, 7.25, 10.25, those of the second at 2.75, 4.75, 5.75,
// 7.75: the hosts are ahead. Where sends block they are not: 1.25, 3, 7.75, 11.5 and 3, 5, 6.75, 8.75.
TEST_CASE("a host that waits for what is sent issues behind it", "[issue]") {
  CHECK(two_stages("1f1b") == Approx(10.25));
  CHECK(two_stages("1f1b(sends=blocking)") == Approx(11.5));
}

}  // namespace
}  // namespace plimsoll
