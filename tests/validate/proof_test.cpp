// The proof that schedules are right: replayed with real tensors, every strategy's schedule ends with the parameters,
// gradients and states of plain training, bit for bit, and takes the live bytes that were promised.

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <string_view>

#include "sim/judge/check.h"
#include "strategies/compose/spec.h"
#include "strategies/list.h"
#include "tests/random_case.h"
#include "tests/training/training.h"
#include "validate/networks/initial_values.h"

namespace plimsoll {
namespace {

const std::vector<std::string> networks{
    "mlp:layers=5,width=24,batch=6,classes=4", "resnet:blocks=3,channels=4,picture=16,batch=2,classes=5",
    "gpt:layers=2,width=16,heads=2,sequence=8,batch=2,vocabulary=20", "lstm:steps=6,width=8,batch=4,classes=3"};

/// Budgets from the least that the strategy can do to all that it asks for.
std::vector<std::optional<Bytes>> budgets_of(const Problem& problem, const std::string& spec) {
  const PlanOutcome nothing = planned(problem, spec, Bytes{0});
  if (std::holds_alternative<Plan>(nothing)) return {std::nullopt};
  const Bytes least = std::get<Infeasible>(nothing).smallest.value();
  const PlanOutcome free = planned(problem, spec);
  const Bytes most = std::get<Plan>(free).peak;
  std::vector<std::optional<Bytes>> budgets{least};
  if (least < most) budgets.emplace_back(Bytes{(least.count + most.count) / 2});
  budgets.emplace_back(std::nullopt);
  return budgets;
}

/// Transforms train something else: see below. What compresses trains with approximations: packed_training_test.cpp.
bool trains_everything(const StrategyInfo& strategy) {
  return strategy.makes_tapes() && strategy.family != Family::compression;
}

/// Plain training: the schedule that everything is held to, and what it ends with.
struct Plain {
  Schedule schedule;
  Replayed run;
};

Plain plain_training(const Training& training) {
  const PlanOutcome outcome = planned(training.problem, "store_all");
  const Schedule& schedule = std::get<Plan>(outcome).schedule;
  return {schedule, replayed(training, schedule)};
}

/// Equal to the bit where contributions to gradients are added in the same order; where a shared parameter's are not, a
/// sum of floats is another by its rounding, and so is all that follows from it.
void hold_to_plain(const Training& training, const Plain& plain, const Schedule& schedule, const Replayed& run) {
  constexpr double rounding = 2e-5;  // of some ten contributions of 24 bits, relative to the largest number
  const bool same_order = contributions(training.problem, schedule) == contributions(training.problem, plain.schedule);
  for (const std::string& name : differing(run, plain.run)) {
    INFO(name);
    CHECK_FALSE(same_order);
    REQUIRE(plain.run.values.contains(name));
    CHECK(relative_difference(run, plain.run, name) <= rounding);
  }
  CHECK(run.values.size() > 2);
}

void prove(const Training& training, const Plain& plain, const std::string& spec) {
  const Problem& problem = training.problem;
  for (const std::optional<Bytes> budget : budgets_of(problem, spec)) {
    INFO("plimsoll simulate --trace " << problem.graph.name << " --strategy '" << spec << "' --memory '"
                                      << (budget ? std::to_string(budget->count) : "unlimited") << " B'");
    const PlanOutcome outcome = planned(problem, spec, budget);
    REQUIRE(std::holds_alternative<Plan>(outcome));
    const Schedule& schedule = std::get<Plan>(outcome).schedule;
    const Replayed run = replayed(training, schedule);
    hold_to_plain(training, plain, schedule, run);
    CHECK(recount(schedule, run.timeline, problem.platform)[0] == run.timeline.peaks[0].bytes);
  }
}

TEST_CASE("store_all replayed on a chain and on its graph ends with the same parameters and gradients", "[validate]") {
  for (const std::string& network : networks) {
    const Training chain = training_of(network, one_gpu(), {.micro_batches = 2, .optimizer = Optimizer::adam});
    const Training graph = training_of(network + ",view=graph,updates=adam", one_gpu(), {.micro_batches = 2});
    INFO(network);
    const Replayed a = plain_training(chain).run, b = plain_training(graph).run;
    CHECK(differing(a, b).empty());
    CHECK(differing(b, a).empty());
    CHECK(a.values.size() > 4);
  }
}

/// By plans of its chain and of its graph.
void prove_both_ways(const std::string& network) {
  const Training chain = training_of(network, one_gpu(), {.micro_batches = 2, .optimizer = Optimizer::adam});
  const Training graph = training_of(network + ",view=graph,updates=adam", one_gpu(), {.micro_batches = 2});
  const Plain of_chain = plain_training(chain), of_graph = plain_training(graph);
  CHECK(differing(of_chain.run, of_graph.run).empty());
  for (const char* spec : {"rotor", "offload_greedy", "full_recompute"}) prove(chain, of_chain, spec);
  for (const char* spec : {"greedy_recompute", "offload_greedy"}) prove(graph, of_graph, spec);
}

TEST_CASE("fused attention, whose op makes two values, trains as plain training does", "[validate]") {
  prove_both_ways("gpt:layers=2,width=16,heads=2,sequence=8,batch=2,vocabulary=20,attention=fused");
}

TEST_CASE("a decoder with grouped heads, or with experts, trains as plain training does", "[validate]") {
  prove_both_ways("decoder:layers=2,width=16,heads=4,kv_heads=2,inner=24,sequence=8,batch=2,vocabulary=20" +
                  std::string(GENERATE("", ",experts=4,capacity=0.75,tied=yes")));
}

TEST_CASE("every strategy for chains trains as plain training does", "[validate]") {
  for (std::size_t n = 0; n < networks.size(); ++n) {
    const Training training = training_of(networks[n], one_gpu(), {.micro_batches = 2, .optimizer = Optimizer::adam});
    const Plain plain = plain_training(training);
    for (const RandomCase k : fewer_cases(0, std::size(strategies()) - 1, 3 * networks.size())) {
      const StrategyInfo* strategy = strategies()[(k + n) % std::size(strategies())];
      if (trains_everything(*strategy)) prove(training, plain, std::string(strategy->name));
    }
  }
}

/// Integer programs are solved on the smallest network only. The search for the optimum of GPT's graph, which takes a
/// minute, comes with PLIMSOLL_TESTS=all: `exact` and what asks it, the portfolio.
bool takes_too_long(const StrategyInfo& strategy, const std::string& network, const std::string& smallest) {
  constexpr std::array<std::string_view, 4> programs{"checkmate", "checkmate_lp", "monet", "offload_exact"};
  if (std::ranges::find(programs, strategy.name) != programs.end()) return network != smallest;
  return !every_case() && network.starts_with("gpt") && (strategy.name == "exact" || strategy.name == "portfolio");
}

TEST_CASE("every strategy for graphs trains as plain training does", "[validate]") {
  const std::vector<std::string> graphs{
      "mlp:layers=2,width=24,batch=6,classes=4", "resnet:blocks=1,channels=4,picture=16,batch=2,classes=5",
      "gpt:layers=1,width=16,heads=2,sequence=8,batch=2,vocabulary=20", "lstm:steps=3,width=8,batch=4,classes=3"};
  for (std::size_t n = 0; n < graphs.size(); ++n) {
    const std::string& network = graphs[n];
    const Training training = training_of(network + ",view=graph,updates=sgd", one_gpu(), {.micro_batches = 2});
    const Plain plain = plain_training(training);
    for (const RandomCase k : fewer_cases(0, std::size(strategies()) - 1, 3 * graphs.size())) {
      const StrategyInfo* strategy = strategies()[(k + n) % std::size(strategies())];
      if (strategy->chains_only || !trains_everything(*strategy)) continue;
      if (takes_too_long(*strategy, network, graphs.front())) continue;
      prove(training, plain, std::string(strategy->name));
    }
  }
}

TEST_CASE("plans of snapshot train as plain training does, with copies and without, and take what they promise",
          "[validate][turn-25]") {
  std::size_t repeated = 0, moved = 0;
  for (const std::string& network : {networks[1], networks[2]}) {
    const Training training = training_of(network + ",view=graph,updates=adam", one_gpu(), {.micro_batches = 1});
    const Problem& problem = training.problem;
    const Plain plain = plain_training(training);
    const auto is_run = [](const Step& step) { return step.op != no_op; };
    for (const std::string spec : {"snapshot(offload=no)", "snapshot"}) {
      const Bytes least = std::get<Infeasible>(planned(problem, spec, Bytes{0})).smallest.value();
      const Bytes most = plain.run.timeline.peaks[0].bytes;
      for (const std::int64_t tenths : {0, 2, 4, 6, 8}) {
        const Bytes budget = least + Bytes{(most - least).count * tenths / 10};
        INFO(network << ", " << spec << " within " << budget.count << " B");
        const PlanOutcome outcome = planned(problem, spec, budget);
        const Plan& made = std::get<Plan>(outcome);
        CHECK(check(made.schedule, problem.graph, problem.platform).empty());
        const Replayed run = replayed(training, made.schedule);
        CHECK(differing(run, plain.run).empty());
        CHECK(run.timeline.peaks[0].bytes == made.peak);
        CHECK(made.peak <= budget);
        const auto runs = static_cast<std::size_t>(std::ranges::count_if(made.schedule.steps, is_run));
        repeated += runs > problem.graph.ops.size() ? 1 : 0;
        moved += runs < made.schedule.steps.size() ? 1 : 0;
      }
    }
  }
  CHECK(repeated > 3);
  CHECK(moved > 3);
}

/// What is trained ends as in plain training, what is frozen as it began.
void prove_partly_trained(const Training& training, const Plain& plain, const std::string& spec) {
  INFO(training.problem.graph.name << ", " << spec);
  const Training partly{transformed(training.problem, parse_spec(spec, "test")),
                        with_kernels(training.network.network)};
  REQUIRE(partly.problem.transformed);
  for (const std::optional<Bytes> budget : budgets_of(training.problem, spec)) {
    const PlanOutcome outcome = planned(training.problem, spec, budget);
    const Schedule& schedule = std::get<Plan>(outcome).schedule;
    const Replayed run = replayed(partly, schedule);
    CHECK(recount(schedule, run.timeline, partly.problem.platform)[0] == run.timeline.peaks[0].bytes);
    std::size_t frozen = 0, trained = 0;
    for (const std::string& name : differing(run, plain.run)) {
      const auto of_name = [&](const Tensor& tensor) { return tensor.name == name; };
      const auto tensor = std::ranges::find_if(training.network.network.graph.tensors, of_name);
      INFO(name);
      CHECK(tensor->kind == TensorKind::parameter);
      CHECK(run.values.at(name) == initial_value(*tensor));
      ++frozen;
    }
    for (const Tensor& tensor : partly.problem.graph.tensors) {
      if (tensor.kind != TensorKind::parameter_gradient) continue;
      CHECK(run.values.at(tensor.name) == plain.run.values.at(tensor.name));
      ++trained;
    }
    CHECK(frozen > 0);
    CHECK(trained > 0);
  }
}

TEST_CASE("where only chosen parameters are trained, they end as in plain training", "[validate]") {
  for (const std::string& network : networks) {
    if (network.starts_with("lstm")) continue;  // its stages share their parameters: nothing is frozen
    const Training chain = training_of(network, one_gpu(), {.micro_batches = 2, .optimizer = Optimizer::adam});
    const Training graph = training_of(network + ",view=graph,updates=adam", one_gpu(), {.micro_batches = 2});
    const Plain plain_chain = plain_training(chain), plain_graph = plain_training(graph);
    for (const std::string choice : {"sparse_update", "sparse_update(train=last:2)"}) {
      for (const std::string then : {"", "|offload_greedy", "|rotor"}) {
        prove_partly_trained(chain, plain_chain, choice + then);
      }
      for (const std::string then : {"", "|offload_greedy", "|greedy_recompute"}) {
        prove_partly_trained(graph, plain_graph, choice + then);
      }
    }
  }
}

}  // namespace
}  // namespace plimsoll
