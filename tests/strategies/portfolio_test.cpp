// A portfolio against each strategy that it asks, against all schedules, and its local moves.

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>

#include "sim/io/input_error.h"
#include "strategies/api/solver_options.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "strategies/list.h"
#include "strategies/offloading/activations/offload_options.h"
#include "strategies/portfolio/portfolio_members.h"
#include "strategies/portfolio/portfolio_moves.h"
#include "tests/generate/problems.h"
#include "tests/random_case.h"
#include "tests/strategies/graph_oracle.h"
#include "tests/strategies/judged_plan.h"

namespace plimsoll {
namespace {

/// Small chains and graphs, with a slow host and without one.
Problem small_problem(std::uint64_t seed) {
  const Gpus machine{.to_host = BytesPerSecond{seed % 3 == 0 ? 4.0 : 16.0}};
  if (seed % 2 == 0) return problem_of(random_small_chain(seed, 2 + seed % 3), gpus(machine));
  return problem_of(random_graph(seed, 2 + seed % 4), gpus(machine));
}

/// From what the portfolio needs at least up to plain training's peak.
std::vector<std::optional<Bytes>> some_budgets(const Problem& problem) {
  const Bytes least = smallest(problem, "portfolio"), most = planned(problem, "store_all").peak;
  std::vector<std::optional<Bytes>> budgets;
  for (const std::int64_t quarters : {0, 1, 2, 3, 4}) {
    budgets.emplace_back(least + Bytes{(most - least).count * quarters / 4});
  }
  return budgets;
}

TEST_CASE("a portfolio is never slower than a strategy that it asks", "[portfolio]") {
  std::size_t compared = 0;
  for (const RandomCase seed : fewer_cases(1, 12)) {
    const Problem problem = small_problem(seed);
    const std::vector<std::optional<Bytes>> budgets = some_budgets(problem);
    const std::vector<PlanOutcome> ours = plan(problem, parse_spec("portfolio", "test"), budgets);
    const std::size_t size = problem.chain ? problem.chain->stages.size() : problem.graph.ops.size();
    for (const Member& member : portfolio_members(problem.chain.has_value(), size, 1)) {
      if (member.passes.empty()) continue;
      std::vector<PlanOutcome> theirs;
      try {
        theirs = plan(problem, member.passes, budgets);
      } catch (const InputError&) {  // not for this problem
        continue;
      }
      for (std::size_t b = 0; b < budgets.size(); ++b) {
        const Plan* made = std::get_if<Plan>(&theirs[b]);
        if (made == nullptr) continue;
        INFO(member.spec << ", seed " << seed << ", " << budgets[b]->count << " B");
        REQUIRE(std::holds_alternative<Plan>(ours[b]));
        REQUIRE(std::get<Plan>(ours[b]).makespan.value <= made->makespan.value * (1 + 1e-12));
        ++compared;
      }
    }
  }
  if (all_cases()) CHECK(compared > cases_of(500U));
}

TEST_CASE("a portfolio says what each strategy gave and which one it took", "[portfolio][eleventh-8]") {
  const auto makes_tapes = [](const StrategyInfo* strategy) {
    return strategy->makes_tapes() && strategy->family != Family::compression;
  };
  const auto asked = static_cast<std::size_t>(std::ranges::count_if(strategies(), makes_tapes));
  for (const RandomCase seed : fewer_cases(1, 6)) {
    const Problem problem = small_problem(seed);
    for (const std::optional<Bytes>& budget : some_budgets(problem)) {
      const Plan made = judged(problem, "portfolio", budget);
      INFO("seed " << seed << ", " << budget->count << " B");
      CHECK(made.candidates.size() + 1 >= asked);  // all but itself
      CHECK(std::ranges::count(made.candidates, true, &Candidate::taken) == 1);
      for (const Candidate& each : made.candidates) {
        CHECK(each.makespan.has_value() == each.reason.empty());
        if (each.makespan) CHECK(*each.makespan >= made.makespan);
        if (each.taken) CHECK(each.makespan == made.makespan);
      }
      REQUIRE(made.gap);
      CHECK(*made.gap >= 0);
    }
  }
}

TEST_CASE("a portfolio for PyTorch asks nobody who moves parameters or parts of values", "[portfolio]") {
  const auto has = [](const std::vector<Member>& members, std::string_view spec) {
    return std::ranges::find(members, spec, &Member::spec) != members.end();
  };
  const std::vector<Member> all = portfolio_members(true, 5, 1),
                            some = portfolio_members(true, 5, 1, MembersFor::pytorch);
  for (const char* spec : {"offmate", "chen_sqrt|offmate", "rotor|zero_offload", "zero_infinity"}) {
    CHECK(has(all, spec));
    CHECK_FALSE(has(some, spec));
  }
  CHECK(has(some, "rotor|offload_greedy"));
  for (const Member& member : some) {
    INFO(member.spec);
    for (const Pass& pass : member.passes) {
      CHECK_FALSE(pass.strategy->moves_parameters());
      if (const auto* copies = pass.options.get_if<ChunkOptions>()) CHECK(copies->chunks == 1);
    }
  }
}

TEST_CASE("on large graphs a portfolio asks what takes long there last, and where nobody else has a plan",
          "[portfolio]") {
  const auto last = [](bool chain, std::size_t size, std::int64_t effort) {
    std::vector<std::string> specs;
    for (const Member& member : portfolio_members(chain, size, effort)) {
      if (member.last_resort && member.reason.empty()) specs.push_back(member.spec);
    }
    return specs;
  };
  CHECK(last(false, 4'000, 1).empty());
  CHECK(last(false, 8'000, 2).empty());
  CHECK(last(true, 4'001, 1).empty());
  const std::vector<std::string> slow = last(false, 4'001, 1);
  CHECK(std::ranges::find(slow, "rockmate") != slow.end());
  CHECK(std::ranges::find(slow, "greedy_recompute|offload_greedy") != slow.end());
  CHECK(std::ranges::find(slow, "snapshot") == slow.end());
  CHECK(std::ranges::find(slow, "greedy_recompute") == slow.end());
}

Platform without_host() {
  Platform platform = gpus({});
  platform.links.clear();
  return platform;
}

TEST_CASE("without a host a portfolio is as fast as the fastest of all schedules of small graphs", "[portfolio]") {
  for (const RandomCase seed : fewer_cases(1, 10)) {
    const Problem problem = problem_of(random_single_sink(seed, 6, 0.6), without_host());
    const Bytes most = planned(problem, "store_all").peak;
    const std::int64_t least = least_budget_of_graph(problem, most.count);
    CHECK(smallest(problem, "portfolio").count == least);
    for (std::int64_t budget = least; budget <= most.count; budget += 1 + (most.count - least) / 4) {
      INFO("seed " << seed << ", " << budget << " B");
      const Plan made = judged(problem, "portfolio", Bytes{budget});
      CHECK(made.makespan.value == Approx(least_time_of_graph(problem, budget).value()));
      CHECK(made.gap.value() == Approx(0).margin(1e-9));
    }
  }
}

TEST_CASE("local moves undo recomputations and copies that the budget does not ask for", "[portfolio]") {
  std::size_t undone = 0, tight = 0;
  for (const RandomCase seed : random_cases(1, 20)) {
    const Problem problem = small_problem(2 * seed);
    const Partition partition = one_device(problem.graph, 1, problem.platform.devices.size());
    const PartTask task{problem, partition, PartId{0}, 1};
    const Plan plain = planned(problem, "store_all");
    for (const char* spec : {"chen_sqrt", "vdnn(mode=all)"}) {
      const std::optional<Bytes> unlimited;
      const auto start = std::get<PlannedTape>(
          judged_tapes_of_passes(task, parse_spec(spec, "test"), std::span(&unlimited, 1)).front());
      INFO(spec << ", seed " << seed);
      CHECK(improved(task, start, plain.peak, 0, "4").makespan == start.makespan);
      const PlannedTape better = improved(task, start, std::max(start.peak, plain.peak), 1'000, "4");
      CHECK(better.makespan.value == Approx(plain.makespan.value));
      undone += better.makespan < start.makespan ? 1 : 0;
      CHECK(improved(task, start, start.peak, 1'000, "4").peak <= start.peak);
      tight += start.peak < plain.peak && plain.makespan < start.makespan ? 1 : 0;
    }
  }
  if (all_cases()) CHECK(undone > 10);
  if (all_cases()) CHECK(tight > 5);  // where to undo all would not fit
}

TEST_CASE("effort is counted in work: more of it is never slower, and the clock has no say",
          "[portfolio][eleventh-1]") {
  for (const RandomCase seed : fewer_cases(1, 6)) {
    const Problem problem = small_problem(seed);
    for (const std::optional<Bytes>& budget : some_budgets(problem)) {
      const PlanOutcome none = plan_one(problem, "portfolio(effort=0)", budget);
      const Plan more = planned(problem, "portfolio(effort=2)", budget);
      if (const Plan* made = std::get_if<Plan>(&none)) CHECK(more.makespan.value <= made->makespan.value * (1 + 1e-12));
    }
  }
  for (const Member& member : portfolio_members(true, 5, 1)) {
    for (const Pass& pass : member.passes) {
      if (const auto* limits = pass.options.get_if<LimitOptions>()) CHECK(limits->time_limit == 86'400);
    }
  }
}

}  // namespace
}  // namespace plimsoll
