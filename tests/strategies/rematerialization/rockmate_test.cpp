// Two levels: the promises of options hold on the whole chain, and blocks are as good as rotor where they can be.

#include <catch2/catch.hpp>

#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "strategies/rematerialization/rockmate/rockmate.h"
#include "strategies/rematerialization/rotor/rotor_exact.h"
#include "strategies/rematerialization/rotor/rotor_table.h"
#include "tests/generate/problems.h"
#include "tests/random_case.h"
#include "tests/strategies/chain_oracle.h"

namespace plimsoll {
namespace {

std::vector<Block> outer(const std::vector<SolvedBlock>& solved) {
  std::vector<Block> blocks;
  blocks.reserve(solved.size());
  for (const SolvedBlock& each : solved) blocks.push_back(each.block);
  return blocks;
}

ChainModel persistent_model(std::size_t stages, std::uint64_t seed) {
  ChainModel model = random_chain_model({.stages = stages, .once_percent = 0}, seed);
  model.keeps_input.assign(stages, true);
  model.keeps_output.assign(stages, true);
  return model;
}

TEST_CASE("rockmate's plans keep the table's memory and time, and rotor is never slower", "[rockmate][property]") {
  for (const RandomCase seed : random_cases(0, 599)) {
    const ChainModel model = persistent_model(1 + seed % 12, seed);
    const std::vector<SolvedBlock> solved = solved_blocks(model, 1 + seed % 5, 2 + seed % 4);
    const ChainCost plain = evaluate(model, store_all_sequence(model.stages()));
    const Bytes base = model.resident + model.x[0];
    const BlockTable table(outer(solved), OptionUse::anywhere, plain.peak - base, 10'000);
    const RotorExact rotor(model);
    std::vector<ChainCost> costs;
    for (std::size_t k = 0; k < table.plans(); ++k) {
      costs.push_back(evaluate(model, sequence_of(solved, table.plan(k))));
      CAPTURE(seed, k, to_string(sequence_of(solved, table.plan(k))));
      REQUIRE(costs.back().violation == "");
    }
    for (std::int64_t memory = 0; memory <= (plain.peak - base).count; ++memory) {
      const std::optional<Seconds> extra = table.extra(Bytes{memory});
      if (!extra) continue;
      CAPTURE(seed, memory);
      const double promised = plain.time.value + extra->value;
      REQUIRE(std::ranges::any_of(costs, [&](const ChainCost& cost) {
        return cost.peak <= base + Bytes{memory} && cost.time.value == promised;
      }));
      const auto best = rotor.solve(base + Bytes{memory});
      REQUIRE(best);
      REQUIRE(best->time.value <= promised);
    }
  }
}

TEST_CASE("rockmate with blocks of one stage is rotor", "[rockmate][property]") {
  for (const RandomCase seed : random_cases(0, 299)) {
    const ChainModel model = persistent_model(2 + seed % 8, seed);
    const std::vector<SolvedBlock> solved = solved_blocks(model, 1, 50);
    const ChainCost plain = evaluate(model, store_all_sequence(model.stages()));
    const Bytes base = model.resident + model.x[0];
    const BlockTable table(outer(solved), OptionUse::anywhere, plain.peak - base, 10'000);
    const RotorTable rotor(model, Bytes{1}, plain.peak);
    for (std::int64_t memory = 0; memory < (plain.peak - base).count; ++memory) {
      CAPTURE(seed, memory);
      REQUIRE(table.extra(Bytes{memory}).value_or(Seconds{-1}).value ==
              rotor.recompute(base + Bytes{memory}).value_or(Seconds{-1}).value);
    }
  }
}

TEST_CASE("rockmate with blocks of any size is never slower than rotor's class on chains of few stages", "[rockmate]") {
  for (const RandomCase seed : random_cases(1, 4)) {
    const Problem problem = problem_of(seed == 1 ? even_chain(60) : random_small_chain(seed, 9 * seed), gpus({}));
    const std::vector<Pass> rotor = parse_spec("rotor(slots=500)", "test"), rockmate = parse_spec("rockmate", "test");
    std::vector<std::optional<Bytes>> budgets;
    const std::vector<Bytes> front = front_budgets(problem, rotor);
    for (std::size_t k = 0; k < front.size(); k += 1 + front.size() / 12) budgets.emplace_back(front[k]);
    const std::vector<PlanOutcome> stages = plan(problem, rotor, budgets), blocks = plan(problem, rockmate, budgets);
    for (std::size_t b = 0; b < budgets.size(); ++b) {
      CAPTURE(seed, budgets[b]->count);
      REQUIRE(std::holds_alternative<Plan>(blocks[b]));
      CHECK(std::get<Plan>(blocks[b]).makespan.value <= std::get<Plan>(stages[b]).makespan.value * (1 + 1e-12));
    }
  }
}

TEST_CASE("rockmate is near rotor on equal blocks, and takes the worked example's times", "[rockmate]") {
  const Problem problem = problem_of(even_chain(24), gpus({}));
  const std::vector<Pass> rockmate = parse_spec("rockmate(block=4)", "test");
  const std::vector<Pass> rotor = parse_spec("rotor", "test");
  double worst = 1;
  for (const Bytes budget : front_budgets(problem, rockmate)) {
    const std::optional<Bytes> limit = budget;
    const PlanOutcome blocks = plan(problem, rockmate, limit);
    const PlanOutcome stages = plan(problem, rotor, limit);
    REQUIRE(std::holds_alternative<Plan>(blocks));
    REQUIRE(std::holds_alternative<Plan>(stages));
    worst = std::max(worst, std::get<Plan>(blocks).makespan / std::get<Plan>(stages).makespan);
  }
  CAPTURE(worst);
  CHECK(worst >= 1);
  CHECK(worst < 1.15);

  const Problem example = problem_of(worked_example(), gpus({}));
  CHECK(front_budgets(example, parse_spec("rockmate(block=1)", "test")) == std::vector<Bytes>{Bytes{20}, Bytes{22}});
}

}  // namespace
}  // namespace plimsoll
