// Plans where hosts issue kernels: against the best of all sequences, and against plans that know of devices alone.

#include "strategies/compose/levels/issued_plans.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "sim/core/collective_op.h"
#include "sim/engine/event/event_engine.h"
#include "sim/measure/host_issue.h"
#include "sim/model/op_times.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"
#include "tests/strategies/graph_oracle.h"

namespace plimsoll {
namespace {

/// A chain whose planner is right about memory to the byte, each of its ops up to 12 kernels.
Problem issued_chain(std::uint64_t seed, std::size_t stages) {
  Chain chain = random_small_chain(seed, stages, false);
  for (Stage& stage : chain.stages) stage.keeps_input = stage.keeps_output = true;
  Problem problem = problem_of(chain, gpus({}));
  Random random(seed);
  for (Op& op : problem.graph.ops) op.kernels = random.chance(0.3) ? random.between(5, 12) : random.between(0, 3);
  for (Device& device : problem.platform.devices) device.host_launch = Seconds{0.25 * random.between(1, 8)};
  return problem;
}

Problem without_hosts(Problem problem) {
  for (Device& device : problem.platform.devices) device.host_launch = Seconds{};
  return problem;
}

double time_with_hosts(const Problem& problem, const Schedule& schedule) {
  const Retimed issued = issued_by_hosts(schedule, problem);
  return simulate_event(issued.schedule, problem.platform).makespan.value;
}

struct Regret {
  double by_devices = 0, with_hosts = 0;  ///< sums of how much slower than the best
  double worst_by_devices = 0, worst_with_hosts = 0;
  int plans = 0, proven = 0;
};

/// Of all budgets at which the strategy's answers for devices change.
void add_regret(const std::string& spec, const Problem& problem, Regret& sum) {
  const std::vector<Pass> passes = parse_spec(spec, "test");
  const Problem devices = without_hosts(problem);
  for (const Bytes budget : front_budgets(devices, passes)) {
    CAPTURE(spec, budget.count);
    const Plan plain = std::get<Plan>(plan(devices, passes, budget));
    const Plan made = std::get<Plan>(plan(problem, passes, budget));
    const std::optional<double> best = least_time_of_graph(problem, budget.count);
    REQUIRE(best);
    CHECK(made.peak <= budget);
    CHECK(made.makespan.value == Approx(time_with_hosts(problem, made.schedule)).epsilon(1e-12));
    CHECK(made.makespan.value >= *best * (1 - 1e-12));
    const double by_devices = time_with_hosts(problem, plain.schedule);
    CHECK(made.makespan.value <= by_devices * (1 + 1e-12));
    // Of `exact` the class is all sequences, rotor's has fewer.
    if (spec == "exact" && made.gap) CHECK(made.makespan.value <= (1 + *made.gap) * *best * (1 + 1e-9));
    if (made.gap == 0.0) ++sum.proven;
    if (*best <= 0) continue;
    sum.by_devices += by_devices / *best - 1;
    sum.with_hosts += made.makespan.value / *best - 1;
    sum.worst_by_devices = std::max(sum.worst_by_devices, by_devices / *best - 1);
    sum.worst_with_hosts = std::max(sum.worst_with_hosts, made.makespan.value / *best - 1);
    ++sum.plans;
  }
}

TEST_CASE("with hosts planners come close to the best of all sequences, and prove what they say of it",
          "[strategies][issue]") {
  for (const std::string spec : {"rotor(slots=exact)", "exact"}) {
    Regret sum;
    for (const RandomCase seed : fewer_cases(1, 66)) add_regret(spec, issued_chain(seed, 2 + seed % 2), sum);
    if (!every_case() || !all_cases()) continue;
    CHECK(sum.by_devices > 0);
    // Of all sequences the one that `exact` plans is the best in 207 of 208 answers; rotor's class has fewer.
    CHECK(sum.with_hosts < (spec == "exact" ? 0.1 : 0.7) * sum.by_devices);
    CHECK(sum.worst_with_hosts < sum.worst_by_devices);
    CHECK(sum.proven > 0);
  }
}

TEST_CASE("what ranks exchange is issued like kernels, and takes its time whatever those take", "[strategies][issue]") {
  Problem problem = problem_of(row_of_ops(2), gpus({}));
  problem.platform.devices.front().host_launch = Seconds{0.5};
  Op exchange = collective_op("sum", {.kind = CollectiveKind::all_reduce, .axis = "replicas"}, Phase::backward);
  exchange.duration = Seconds{7};
  problem.graph.ops.push_back(exchange);
  CHECK(issue_on(problem, OpId{2}, DeviceId{0}) == Seconds{0.5});
  const Problem other = with_op_times(problem, [](Seconds, Seconds issue) { return issue; });
  CHECK(other.graph.ops[0].duration == Seconds{0.5});
  CHECK(other.graph.ops[2].duration == Seconds{7});
}

TEST_CASE("a problem with other times has them wherever planners look", "[strategies][issue]") {
  const auto mixed = [](Seconds device, Seconds issue) { return 0.25 * device + 3.0 * issue; };
  for (const RandomCase seed : random_cases(1, 100)) {
    const bool is_chain = seed % 2 == 0;
    Problem problem = is_chain ? problem_of(random_small_chain(seed, 4), gpus({}))
                               : problem_of(with_alternatives(random_graph(seed, 6), seed), gpus({}));
    Random random(seed);
    for (Op& op : problem.graph.ops) {
      op.kernels = random.between(0, 3);
      op.released_share = 0.5 + 0.1 * random.between(0, 5);
      if (op.phase == Phase::forward) op.load = Seconds{0.1 * random.between(0, 3)};
    }
    problem.platform.devices.front().host_launch = Seconds{0.5};
    const Problem other = with_op_times(problem, mixed);
    constexpr DeviceId device{0};
    const Source& source = problem.graph.source;
    for (std::size_t o = 0; o < problem.graph.ops.size(); ++o) {
      const OpId id = id_at<OpId>(o);
      const Op &was = problem.graph[id], &is = other.graph[id];
      const Seconds issue{0.5 * *was.kernels};
      const auto same = [&](Seconds after, Seconds before) {
        CHECK(after.value == Approx(mixed(before, issue).value).margin(1e-12));
      };
      for (const Saving saving : {Saving::keep, Saving::nothing}) {
        same(duration_on(other, id, device, saving), duration_on(problem, id, device, saving));
      }
      const Seconds before = duration_on(problem, id, device, Saving::keep),
                    after = duration_on(other, id, device, Saving::keep);
      same(duration_again_on(other, id, device, Saving::keep), duration_again_on(problem, id, device, Saving::keep));
      if (after > Seconds{0}) {
        same(within(Backprop::in_one_call, is, source, other.platform[device], after),
             within(Backprop::in_one_call, was, source, problem.platform[device], before));
      }
      for (std::uint32_t k = 1; k <= was.alternatives.size(); ++k) {
        same(duration_on(other, id, device, Saving::keep, k), duration_on(problem, id, device, Saving::keep, k));
      }
    }
    if (!is_chain) continue;
    for (std::size_t i = 0; i < other.chain->stages.size(); ++i) {
      const Stage& stage = other.chain->stages[i];
      const OpId forward = other.index->forward[i], backward = other.index->backward[i];
      CHECK(stage.forward == duration_on(other, forward, device, Saving::keep));
      CHECK(stage.forward_nograd == duration_on(other, forward, device, Saving::nothing));
      CHECK(stage.backward == (backward == no_op ? Seconds{0} : duration_on(other, backward, device, Saving::keep)));
    }
  }
}

}  // namespace
}  // namespace plimsoll
