// Parameters and updates in part on the host: against its linear program, an exhaustive search over where each group
// is, and the strategies that it contains.

#include <catch2/catch.hpp>

#include "sim/engine/event/event_engine.h"
#include "sim/judge/check.h"
#include "sim/measure/metrics.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "strategies/models/op_sequence.h"
#include "strategies/offloading/parameters/demand_layering.h"
#include "strategies/offloading/parameters/offmate.h"
#include "strategies/offloading/updates/placed_updates.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"
#include "tests/strategies/judged_plan.h"

namespace plimsoll {
namespace {

Chain trained_chain(std::uint64_t seed, std::size_t stages) {
  Chain chain = random_small_chain(seed, stages);
  for (std::size_t s = 0; s < stages; ++s) {
    if (!chain.stages[s].parameters.empty()) continue;
    chain.stages[s].parameters = {static_cast<std::uint32_t>(chain.parameters.size())};
    chain.parameters.push_back({"own" + std::to_string(s), Bytes{static_cast<std::int64_t>(4 + s)}});
  }
  return chain;
}

Problem random_problem(std::uint64_t seed, std::size_t stages, std::uint32_t micro_batches = 1) {
  Random random(seed);
  const ProblemOptions options{.micro_batches = micro_batches,
                               .optimizer = random.chance(0.5) ? Optimizer::adam : Optimizer::momentum,
                               .gradients = random.chance(0.7) ? Gradients::fresh : Gradients::existing};
  const Gpus machine{.to_host = {static_cast<double>(random.between(1, 16))},
                     .adam = BytesPerSecond{static_cast<double>(random.between(1, 8))}};
  return problem_of(trained_chain(seed, stages), gpus(machine), options);
}

enum class Site : std::uint8_t { device, host, streamed };

PlannedTape placed(const PartTask& task, const Tape& tape, const std::vector<OpId>& updates,
                   const std::vector<Site>& sites, std::uint32_t lead) {
  StreamedParameters streamed{.parameters = {}, .lead = lead};
  std::vector<UpdateGroup> groups{{{}, UpdateSite::host}, {{}, UpdateSite::device}};
  for (std::size_t u = 0; u < updates.size(); ++u) {
    groups[sites[u] == Site::device ? 1 : 0].ops.push_back(updates[u]);
    if (sites[u] != Site::streamed) continue;
    for (const TensorId t : task.problem.graph[updates[u]].mutates) {
      if (task.problem.graph[t].kind == TensorKind::parameter) streamed.parameters.push_back(t);
    }
  }
  Tape made = with_streamed_parameters(task.problem, tape, streamed);
  return simulated(task, with_updates(task.problem, std::move(made), groups, {.overlaps_backward = true}));
}

/// Every site of every update with every lead: (peak, makespan).
std::vector<std::pair<Bytes, Seconds>> every_placement(const PartTask& task, const Tape& tape) {
  const std::vector<OpId> updates = updates_by_gradient(task.problem, tape);
  std::vector<std::pair<Bytes, Seconds>> all;
  std::size_t count = 1;
  for (std::size_t u = 0; u < updates.size(); ++u) count *= 3;
  for (std::size_t code = 0; code < count; ++code) {
    std::vector<Site> sites;
    for (std::size_t u = 0, rest = code; u < updates.size(); ++u, rest /= 3) {
      sites.push_back(static_cast<Site>(rest % 3));
    }
    for (const std::uint32_t lead : {0U, 1U, 2U, 4U}) {
      const PlannedTape made = placed(task, tape, updates, sites, lead);
      all.emplace_back(made.peak, made.makespan);
    }
  }
  return all;
}

TEST_CASE("no placement of parameters and updates beats offmate's linear program", "[offmate]") {
  double closest = 1;
  for (const RandomCase seed : random_cases(1, 25)) {
    const Problem problem = random_problem(seed, 1 + seed % 4);
    const Partition partition = one_device(problem.graph, 1, 1);
    const PartTask task{problem, partition, PartId{0}, 1};
    const Tape tape = tape_of_ops(task.problem.graph, store_all_ops(task));
    const OffmateBound bound(task, tape, true);
    std::size_t compared = 0;
    for (const auto& [peak, makespan] : every_placement(task, tape)) {
      if (compared++ % 3 != 0) continue;
      const std::optional<Seconds> least = bound.least(peak);
      INFO("seed " << seed << ", within " << peak.count);
      REQUIRE(least);
      CHECK(makespan.value >= least->value * (1 - 1e-6));
      closest = std::min(closest, 1 - *least / makespan);
    }
  }
  if (all_cases()) CHECK(closest < 0.01);  // it is reached
}

TEST_CASE("offmate is near the best placement of all, and exact about its own gap", "[offmate]") {
  double ours = 0, best = 0;
  for (const RandomCase seed : random_cases(1, 25)) {
    const Problem problem = random_problem(seed, 2 + seed % 3);
    const Partition partition = one_device(problem.graph, 1, 1);
    const PartTask task{problem, partition, PartId{0}, 1};
    const Tape tape = tape_of_ops(task.problem.graph, store_all_ops(task));
    const auto all = every_placement(task, tape);
    const Bytes least = smallest(problem, "offmate(steps=12)"), most = judged(problem, "store_all").peak;
    for (Bytes budget = least; budget <= most; budget += Bytes{5}) {
      const Plan made = judged(problem, "offmate(steps=12)", budget);
      double fastest = made.makespan.value;
      for (const auto& [peak, makespan] : all) {
        if (peak <= budget) fastest = std::min(fastest, makespan.value);
      }
      REQUIRE(made.gap);
      CHECK(made.makespan.value / (1 + *made.gap) <= fastest * (1 + 1e-6));
      ours += made.makespan.value / fastest;
      best += 1;
    }
  }
  INFO(ours / best);
  if (all_cases()) CHECK(ours / best < 1.05);
}

TEST_CASE("offmate contains plain training, zero_offload and layers that stream", "[offmate]") {
  const std::vector<std::string> contained{"store_all", "zero_offload(overlap=on)",
                                           "demand_layering(lead=1, overlap=on)",
                                           "demand_layering(lead=4, overlap=on)"};
  for (const RandomCase seed : random_cases(1, 20)) {
    const Problem problem = random_problem(seed, 1 + seed % 7);
    for (const std::string& each : contained) {
      const Plan other = judged(problem, each);
      INFO(each << ", seed " << seed);
      CHECK(judged(problem, "offmate", other.peak).makespan.value <= other.makespan.value * (1 + 1e-9));
    }
    const Plan free = judged(problem, "offmate");
    CHECK(free.gap.value() < 1e-6);  // updates take no time here, so that nothing is better than to keep everything
  }
}

TEST_CASE("offmate is legal, as promised and never faster with less", "[offmate]") {
  const std::vector<std::string> specs{"offmate",
                                       "offmate(steps=3, overlap=off)",
                                       "rotor|offmate(steps=3)",
                                       "offload_greedy|offmate(steps=2)",
                                       "sparse_update|offmate",
                                       "sparse_update|rotor|offmate(steps=2)"};
  for (const std::string& spec : specs) {
    for (const RandomCase seed : fewer_cases(1, 6)) {
      const std::vector<Pass> passes = parse_spec(spec, "test");
      const Problem problem = transformed(random_problem(seed, 1 + seed % 6, seed % 3 == 0 ? 2 : 1), passes);
      INFO(spec << ", seed " << seed);
      const Plan free = judged(problem, spec);
      const Bytes least = smallest(problem, spec);
      CHECK(std::holds_alternative<Infeasible>(plan_one(problem, spec, least - Bytes{1})));
      double slower = free.makespan.value;
      for (Bytes budget = free.peak; budget >= least; budget -= Bytes{7}) {
        const Plan made = judged(problem, spec, budget);
        CHECK(made.makespan.value >= slower * (1 - 1e-9));
        slower = std::max(slower, made.makespan.value);
      }
      judged(problem, spec, least);
    }
  }
}

TEST_CASE("frozen parameters stream where there is nothing to update", "[offmate]") {
  Chain chain = even_chain(8);
  for (std::size_t s = 0; s < 8; ++s) {
    chain.stages[s].parameters = {static_cast<std::uint32_t>(s)};
    chain.parameters.push_back({"w" + std::to_string(s), Bytes{100}});
  }
  const Problem whole =
      problem_of(chain, gpus({.to_host = {200}, .adam = BytesPerSecond{50}}), {.optimizer = Optimizer::adam});
  const Problem problem = transformed(whole, parse_spec("sparse_update", "test"));
  const Plan plain = judged(problem, "sparse_update");
  const Plan streamed = judged(problem, "sparse_update|offmate", Bytes{plain.peak.count / 2});
  CHECK(streamed.peak.count < plain.peak.count / 2);
  CHECK(streamed.makespan.value < 1.1 * plain.makespan.value);
}

}  // namespace
}  // namespace plimsoll
