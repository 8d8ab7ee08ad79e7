// The transform that freezes parameters: what goes, what stays, and every strategy after it.

#include <catch2/catch.hpp>
#include <string_view>
#include <vector>

#include "sim/engine/event/event_engine.h"
#include "sim/io/input_error.h"
#include "sim/judge/check.h"
#include "sim/measure/metrics.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"
#include "tests/strategies/judged_plan.h"

namespace plimsoll {
namespace {

Problem frozen(const Problem& problem, const std::string& spec) {
  return transformed(problem, parse_spec(spec, "test"));
}

std::string refusal(const Problem& problem, const std::string& spec) {
  try {
    frozen(problem, spec);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

/// `stages` stages of 1 s forward and 2 s backward, half of it for the weight; x of 10 bytes, 5 more saved inside; a
/// weight of 8 bytes and a bias of 1.
Chain trained_chain(std::size_t stages) {
  Chain chain = even_chain(stages);
  for (std::size_t s = 0; s < stages; ++s) {
    Stage& stage = chain.stages[s];
    stage.backward_weight = Seconds{1};
    stage.has_backward_weight = true;
    for (const auto& [what, bytes] : {std::pair{".weight", Bytes{8}}, std::pair{".bias", Bytes{1}}}) {
      stage.parameters.push_back(static_cast<std::uint32_t>(chain.parameters.size()));
      chain.parameters.push_back({"stage" + std::to_string(s) + what, bytes});
    }
  }
  chain.stages.back().has_backward_weight = true;  // none
  return chain;
}

// Four forwards of 1 s. Of the third stage, the first that is trained, only the weight gradient is needed: 1 s; the
// backward of the fourth takes 2 s.
TEST_CASE("sparse_update by hand: stages before the first trained one have no backward", "[sparse]") {
  const Problem whole = problem_of(trained_chain(4), gpus({}), {.optimizer = Optimizer::adam});
  const Plan made = judged(whole, "sparse_update(train=last:2)");
  CHECK(made.makespan.value == 4 + 2 + 1);
  // Parameters 36, states of what is trained 36; at the backward of the fourth stage x2 (10), saved 15 and 15, its
  // output gradient 10, the input gradient 10 and its parameter gradients 9.
  CHECK(made.peak.count == 36 + 36 + 10 + 15 + 15 + 10 + 10 + 9);
  const Problem problem = frozen(whole, "sparse_update(train=last:2)");
  CHECK(problem.graph.ops.size() == 5 + 3 + 4);  // with the loss's; updates of two weights and two biases
  CHECK(problem.index->backward[1] == no_op);
  CHECK(bytes_of_kind(problem.graph, TensorKind::parameter) == Bytes{36});
  CHECK(bytes_of_kind(problem.graph, TensorKind::parameter_gradient) == Bytes{18});
  CHECK(bytes_of_kind(problem.graph, TensorKind::optimizer_state) == Bytes{36});
}

// A frozen stage behind the first trained one hands its input gradient on: 1 s of its 2 s.
TEST_CASE("sparse_update by hand: a frozen stage between trained ones computes no weight gradient", "[sparse]") {
  const Problem whole = problem_of(trained_chain(4), gpus({}));
  CHECK(judged(whole, "sparse_update(train=stage1.*+stage3.*)").makespan.value == 4 + 2 + 1 + 1);
  // Of a stage in which only the bias is trained the whole backward counts: how long a bias alone takes is not known.
  CHECK(judged(whole, "sparse_update(train=stage1.bias+stage3.*)").makespan.value == 4 + 2 + 1 + 1);
  CHECK(judged(whole, "sparse_update(train=biases:3)").makespan.value == 4 + 2 + 2 + 1);
  CHECK(judged(whole, "sparse_update(train=biases)").makespan.value == 4 + 4 * 2);
}

TEST_CASE("sparse_update saves no time of weight gradients that the trace does not state", "[sparse]") {
  Chain chain = trained_chain(4);
  for (Stage& stage : chain.stages) stage.has_backward_weight = false;
  const Problem whole = problem_of(chain, gpus({}));
  CHECK(judged(whole, "sparse_update(train=stage1.*+stage3.*)").makespan.value == 4 + 3 * 2);
}

TEST_CASE("what is trained altogether is plain training", "[sparse]") {
  for (const RandomCase seed : random_cases(1, 50)) {
    Chain chain = random_small_chain(seed, 1 + seed % 7);
    if (parameter_bytes(chain) == Bytes{0}) continue;
    const Problem whole = problem_of(chain, gpus({}), {.optimizer = Optimizer::adam});
    if (std::ranges::all_of(chain.stages, [](const Stage& stage) { return stage.parameters.empty(); })) continue;
    const Problem same = frozen(whole, "sparse_update(train=last:1000)");
    CHECK(same.graph == whole.graph);
    CHECK(same.chain == whole.chain);
  }
}

TEST_CASE("a problem is transformed once", "[sparse]") {
  const Problem whole = problem_of(trained_chain(5), gpus({}), {.optimizer = Optimizer::sgd});
  const std::string spec = "sparse_update(train=stage2.*+biases:1)";
  const Problem once = frozen(whole, spec);
  CHECK(frozen(once, spec).graph == once.graph);
  CHECK(planned(once, spec).peak == planned(whole, spec).peak);
}

TEST_CASE("with split backwards frozen stages have no weight part", "[sparse]") {
  const Problem whole = problem_of(trained_chain(4), gpus({}), {.backward = Backward::split});
  const Problem problem = frozen(whole, "sparse_update(train=stage1.*+stage3.*)");
  CHECK(problem.index->weight[0] == no_op);
  CHECK(problem.index->weight[2] == no_op);
  CHECK(problem.index->backward[1] == no_op);  // nobody needs the gradient of its input
  CHECK(judged(whole, "sparse_update(train=stage1.*+stage3.*)").makespan.value == 4 + 2 + 1 + 1);
}

TEST_CASE("every strategy plans what a transform leaves, as promised, and never faster with less",
          "[sparse][eleventh-1]") {
  const std::vector<std::string> memory{"store_all",
                                        "rotor",
                                        "rotor(slots=9)",
                                        "chen_sqrt",
                                        "chen_greedy",
                                        "periodic",
                                        "full_recompute",
                                        "selective",
                                        "revolve",
                                        "revolve_hetero",
                                        "rotor_floating",
                                        "rockmate",
                                        "exact",
                                        "ap_sqrt",
                                        "ap_greedy",
                                        "greedy_recompute",
                                        "dtr",
                                        "min_cut",
                                        "knapsack",
                                        "checkmate_lp",
                                        "vdnn",
                                        "superneurons",
                                        "capuchin",
                                        "save_on_cpu",
                                        "offload_greedy",
                                        "offload_fractional",
                                        "offload_dp",
                                        "offload_exact(values=6)",
                                        "rotor|offload_greedy",
                                        "pofo"};
  for (const std::string& each : memory) {
    for (const RandomCase seed : fewer_cases(1, 12)) {
      Random random(seed);
      const ProblemOptions options{.micro_batches = random.chance(0.7) ? 1 : random.between(2, 3),
                                   .optimizer = random.chance(0.5) ? Optimizer::none : Optimizer::adam,
                                   .gradients = random.chance(0.7) ? Gradients::fresh : Gradients::existing};
      Chain chain = random_small_chain(seed, random.between(1, each == "checkmate_lp" ? 4 : 6));
      if (std::ranges::all_of(chain.stages, [](const Stage& stage) { return stage.parameters.empty(); })) continue;
      const Problem whole = problem_of(chain, gpus({.to_host = BytesPerSecond{8}}), options);
      const std::string spec = "sparse_update(train=last:" + std::to_string(random.between(1, 3)) + ")|" + each;
      INFO(spec << ", seed " << seed);
      const Plan free = judged(whole, spec);
      const PlanOutcome none = plan_one(whole, spec, Bytes{0});
      const Bytes least = std::get<Infeasible>(none).smallest.value();
      double slower = free.makespan.value;
      for (Bytes budget = free.peak; budget >= least; budget -= Bytes{9}) {
        const Plan made = judged(whole, spec, budget);
        CHECK(made.makespan.value >= slower * (1 - 1e-9));
        slower = std::max(slower, made.makespan.value);
      }
      judged(whole, spec, least);
    }
  }
}

TEST_CASE("frozen parameters have no states to offload", "[sparse]") {
  const Problem whole =
      problem_of(trained_chain(6), gpus({.to_host = {16}, .adam = BytesPerSecond{4}}), {.optimizer = Optimizer::adam});
  const Plan all = judged(whole, "zero_offload"), some = judged(whole, "sparse_update(train=last:2)|zero_offload");
  CHECK(some.makespan < all.makespan);
  CHECK(some.peak < all.peak);
}

TEST_CASE("rotor recomputes less where less is trained", "[sparse]") {
  const Problem whole = problem_of(trained_chain(12), gpus({}));
  const std::optional<Bytes> nothing = Bytes{0};
  const PlanOutcome none = plan(whole, parse_spec("rotor", "test"), nothing);
  const Bytes budget = std::get<Infeasible>(none).smallest.value() + Bytes{40};
  const Plan all = judged(whole, "rotor", budget), some = judged(whole, "sparse_update(train=last:4)|rotor", budget);
  CHECK(all.makespan.value > 12 * 3);
  CHECK(some.makespan.value == 12 + 3 * 2 + 1);
}

TEST_CASE("in a graph only what leads to a trained gradient runs backward", "[sparse]") {
  std::size_t shorter = 0;
  for (const RandomCase seed : random_cases(1, 60)) {
    Graph graph = random_graph(seed, 1 + seed % 12);
    if (bytes_of_kind(graph, TensorKind::parameter) == Bytes{0}) continue;
    const Problem whole = problem_of(graph, gpus({}));
    const Problem problem = frozen(whole, "sparse_update");
    if (problem.graph == whole.graph) continue;  // only one stage has parameters
    INFO("seed " << seed);
    for (const Op& op : problem.graph.ops) {
      if (!is_backward(op.phase)) continue;
      const bool is_used = std::ranges::any_of(op.outputs, [&](TensorId t) {
        return problem.graph[t].kind == TensorKind::parameter_gradient ||
               std::ranges::any_of(problem.graph.ops, [t](const Op& reader) {
                 return std::ranges::find(reader.inputs, t) != reader.inputs.end();
               });
      });
      CHECK(is_used);
    }
    CHECK(judged(whole, "sparse_update").makespan <= planned(whole, "store_all").makespan);
    shorter += problem.graph.ops.size() < graph.ops.size() ? 1 : 0;
  }
  if (all_cases()) CHECK(shorter > 30);
}

TEST_CASE("sparse_update says what it cannot tell or find", "[sparse]") {
  const Problem whole = problem_of(trained_chain(2), gpus({}));
  CHECK(refusal(whole, "sparse_update(train=head)") ==
        "sparse_update: no parameter of 'even' is 'head'; its first parameter is 'stage0.weight'");
  CHECK(refusal(problem_of(even_chain(2), gpus({})), "sparse_update") ==
        "sparse_update: 'even' has no parameters that could be trained");
  Chain stated = trained_chain(2);
  stated.stages[1].parameter_gradient = Bytes{5};  // one gradient for both, of another size
  CHECK(refusal(problem_of(stated, gpus({}), {.optimizer = Optimizer::sgd}), "sparse_update(train=biases)") ==
        "sparse_update: 'gradient of stage 1' may be the gradient of 'stage1.bias', which is to be trained, or of "
        "'stage1.weight', which is not: train both or none");
  for (const std::string spec : {"rotor|sparse_update", "sparse_update|sparse_update", "sparse_update(train=last:0)"}) {
    CHECK_THROWS_AS(parse_spec(spec, "test"), InputError);
  }
}

TEST_CASE("the passes of a pipeline that change its problem, whatever else the text says", "[sparse]") {
  const auto names = [](const char* spec) {
    std::vector<std::string_view> all;
    for (const Pass& pass : changes_of(spec, "test")) all.push_back(pass.strategy->name);
    return all;
  };
  using Names = std::vector<std::string_view>;
  // Planners of chains cut graphs into these.
  CHECK(names("sparse_update(train=last:3)|rotor") == Names{"sparse_update", "rotor"});
  CHECK(names(" sparse_update | greedy_recompute") == Names{"sparse_update"});
  CHECK(names("rotor") == Names{"rotor"});
  CHECK(names("store_all") == Names{});
  CHECK(names("greedy_recompute|offload_greedy") == Names{});
  // What packs has a chain's tensors apart; 1f1b may split backwards.
  CHECK(names("greedy_recompute|quantize(tensors=conv.input+linear)") == Names{"quantize"});
  CHECK(names("sparse_update|1f1b | greedy_recompute | pool|offload_greedy") == Names{"sparse_update", "1f1b", "pool"});
  // Where a placement cuts, planners of chains do not.
  CHECK(names("pardnn|rotor") == Names{"pardnn", "rotor"});
  CHECK(changes_of("by hand|quantize", "test").empty());
  CHECK(changes_of("by hand, not sparse_update", "test").empty());
  CHECK(changes_of("", "test").empty());
}

}  // namespace
}  // namespace plimsoll
