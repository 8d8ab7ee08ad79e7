// Rockmate on graphs: blocks, what they promise, and their plans against the optimum of all schedules.

#include <catch2/catch.hpp>

#include <numeric>

#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "strategies/models/fullest_moment.h"
#include "strategies/rematerialization/programs/checkmate_solver.h"
#include "strategies/rematerialization/rockmate/rockmate_graph.h"
#include "tests/generate/dense_graph.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"
#include "tests/strategies/graph_oracle.h"
#include "tests/strategies/judged_plan.h"

namespace plimsoll {
namespace {

OpModel model_of(const Problem& problem) {
  const Partition partition = one_device(problem.graph, 1, 1);
  return op_model({problem, partition, PartId{0}, 1});
}

// Forwards 0..7, loss 8, backward 9..16 (op 16 - i is the backward of forward i). In blocks of 3 forwards each of nine
// must be in one; the backward of a block's forwards is in it, because elsewhere its input would be kept for it alone.
TEST_CASE("a row of layers is cut into equal blocks, each with its own backward", "[rockmate]") {
  const OpModel model = model_of(problem_of(unit_net(8), gpus({})));
  const std::vector<GraphCut> cuts = cut_graph(model, 3);
  REQUIRE(cuts.size() == 4);
  const std::vector<std::pair<std::size_t, std::size_t>> expected{{0, 17}, {3, 15}, {6, 12}, {9, 9}};
  for (std::size_t c = 0; c < cuts.size(); ++c) {
    CAPTURE(c);
    CHECK(cuts[c].forward == expected[c].first);
    CHECK(cuts[c].backward == expected[c].second);
  }
  const std::vector<BlockPart> parts = block_parts(model, cuts);
  CHECK(parts[1].input == Bytes{1});
  CHECK(parts[1].held == Bytes{1});  // one gradient
  CHECK(parts[1].passes == Bytes{0});
  CHECK(parts[1].bare.size() == 3);
}

TEST_CASE("every op is in one block, and no value is read before its block can have it", "[rockmate][property]") {
  for (const RandomCase seed : random_cases(1, 200)) {
    Random random(seed);
    const OpModel model = model_of(problem_of(random_graph(seed, random.between(1, 14)), gpus({})));
    const auto size = static_cast<std::size_t>(random.between(1, 5));
    CAPTURE(seed, size);
    std::vector<bool> met(model.ops.size(), false);
    for (const BlockPart& part : block_parts(model, cut_graph(model, size))) {
      for (const std::optional<OpId>& op : part.origin) {
        if (!op) continue;
        REQUIRE_FALSE(met[op->index]);
        met[op->index] = true;
      }
      REQUIRE(is_runnable(part.model, every_op(part.model)));
    }
    REQUIRE(std::accumulate(met.begin(), met.end(), std::size_t{0}) == met.size());
  }
}

TEST_CASE("blocks of one shape are solved once", "[rockmate]") {
  const OpModel model = model_of(problem_of(unit_net(60), gpus({})));
  std::size_t plans = 0;
  const BlockCount count = block_sequences(model, {.block = 5}, [&](const OpSequence&) { ++plans; });
  CAPTURE(count.solved, count.met, plans);
  CHECK(count.met == 13);
  CHECK(count.solved <= 4);  // the first, those between, the last but one, the last
  CHECK(plans > 5);
}

TEST_CASE("rockmate on random graphs is never faster than the optimum, and plain training at its peak",
          "[rockmate][property][eleventh-2]") {
  std::size_t optimal = 0, solved = 0;
  for (const RandomCase seed : random_cases(1, 150)) {
    Random random(seed);
    const Problem problem = problem_of(random_single_sink(seed, random.between(5, 10), 0.7), gpus({}));
    const auto plain = std::get<Plan>(plan_one(problem, "store_all", std::nullopt));
    const auto spec = "rockmate(block=" + std::to_string(random.between(1, 4)) + ")";
    INFO("seed " << seed << ", " << spec);
    const auto whole = std::get<Plan>(plan_one(problem, spec, plain.peak));
    CHECK(whole.makespan == plain.makespan);
    for (std::int64_t budget = plain.peak.count - 1; budget > 0; --budget) {
      const PlanOutcome outcome = plan_one(problem, spec, Bytes{budget});
      const std::optional<double> best = least_time_of_graph(problem, budget);
      const Plan* made = std::get_if<Plan>(&outcome);
      if (made == nullptr) break;
      REQUIRE(best);
      CHECK(made->peak.count <= budget);
      CHECK(made->makespan.value >= *best - 1e-9);
      ++solved;
      optimal += made->makespan.value <= *best + 1e-9 ? 1 : 0;
    }
  }
  CAPTURE(optimal, solved);
  if (all_cases()) CHECK(solved > 100);
  if (all_cases()) CHECK(optimal > solved / 2);
}

// A chain's graph, cut into single stages, has all sequences of rotor's class; what the tape drops earlier can make it
// faster. (Without slots rotor also takes plans of greedy_recompute, which are of no class.)
TEST_CASE("rockmate with blocks of one forward is as fast as rotor on the graph of a chain", "[rockmate][property]") {
  for (const RandomCase seed : random_cases(1, 60)) {
    Random random(seed);
    Chain chain = random_small_chain(seed, random.between(2, 7), false);  // ops of graphs have no workspaces below 0
    for (Stage& stage : chain.stages) {
      stage.keeps_input = stage.keeps_output = stage.recomputable = true;
      stage.parameters.clear();
    }
    const Problem of_chain = problem_of(chain, gpus({}));
    const Problem of_graph = problem_of(of_chain.graph, gpus({}));
    for (const Bytes budget : front_budgets(of_chain, parse_spec("rotor(slots=100000)", "test"))) {
      INFO("seed " << seed << ", budget " << budget.count);
      const auto rotor = std::get<Plan>(plan_one(of_chain, "rotor(slots=100000)", budget));
      const PlanOutcome blocks = plan_one(of_graph, "rockmate(block=1,slots=100000)", budget);
      REQUIRE(std::holds_alternative<Plan>(blocks));
      CHECK(std::get<Plan>(blocks).makespan.value <= rotor.makespan.value + 1e-9);
    }
  }
}

TEST_CASE("a DenseNet-like graph of 3,000 ops: 8 % more time at half its memory, and an eighth is enough",
          "[rockmate][eleventh-9]") {
  const Problem problem = problem_of(dense_graph(dense_layers), gpus({}));
  const auto plain = std::get<Plan>(plan_one(problem, "store_all", std::nullopt));
  const std::vector<std::optional<Bytes>> budgets{Bytes{plain.peak.count / 2}, Bytes{plain.peak.count / 8}};
  const std::vector<PlanOutcome> plans = plan(problem, parse_spec("rockmate", "test"), budgets);
  CHECK(std::get<Plan>(plans[0]).makespan.value <= 1.08 * plain.makespan.value);
  CHECK(std::holds_alternative<Plan>(plans[1]));
}

}  // namespace
}  // namespace plimsoll
