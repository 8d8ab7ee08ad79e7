// Plans for the ranks of a mesh, run by all of them: what they train is what one device trains.

#include <catch2/catch.hpp>

#include <algorithm>

#include "sim/bound/guaranteed_peak.h"
#include "sim/mesh/rank_graph.h"
#include "sim/ops/operators.h"
#include "strategies/compose/spec.h"
#include "strategies/hybrid/on_mesh.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"
#include "tests/training/training.h"
#include "validate/cpu/ranks/rank_replay.h"
#include "validate/networks/networks.h"
#include "validate/networks/rank_layouts.h"

namespace plimsoll {
namespace {

// Adam's first step is a sign, which rounding decides where a gradient is zero but for rounding, as that of the biases
// of keys is.
const std::string ranked_mlp = "mlp:layers=4,width=16,batch=8,classes=8,view=graph,updates=adam";
const std::string ranked_gpt =
    "gpt:layers=2,width=16,heads=4,sequence=8,batch=4,vocabulary=20,view=graph,updates=momentum";
const std::string ranked_fused =
    "gpt:layers=2,width=16,heads=4,sequence=16,batch=2,vocabulary=20,attention=fused,view=graph,updates=momentum";
const std::string ranked_decoder =
    "decoder:layers=2,width=16,heads=4,kv_heads=2,inner=32,sequence=8,batch=4,vocabulary=20,view=graph,"
    "updates=momentum";

Platform devices(std::uint32_t count) {
  constexpr BytesPerSecond fast{20e9};
  return gpus({.count = count, .to_host = fast, .to_peers = fast});
}

Replayed run_on_ranks(const std::string& network, const Problem& problem, const Schedule& schedule) {
  BlockPool pool;
  auto made = network_on_ranks(named_network(network).network, problem, pool);
  if (const auto* failure = std::get_if<ReplayFailure>(&made)) FAIL(failure->what);
  auto& runnable = *std::get<std::unique_ptr<RunnableNetwork>>(made);
  auto outcome = replay(problem, schedule, runnable, {.poisons = true, .keeps_values = true});
  if (const auto* failure = std::get_if<ReplayFailure>(&outcome)) FAIL(failure->what);
  return std::get<Replayed>(std::move(outcome));
}

Replayed trained_alone(const std::string& network, std::uint32_t micro_batches) {
  const Training one = training_of(network, one_gpu(), {.micro_batches = micro_batches});
  return replayed(one, std::get<Plan>(planned(one.problem, "store_all")).schedule);
}

/// Parameters and states, all of them, within rounding.
void check_same(const Replayed& ranks, const Replayed& one) {
  std::size_t compared = 0;
  for (const auto& [name, value] : one.values) {
    if (name.starts_with("gradient of")) continue;
    CAPTURE(name);
    REQUIRE(ranks.values.contains(name));
    CHECK(relative_difference(ranks, one, name) < 2e-5);
    ++compared;
  }
  CHECK(compared > 10);
}

/// A rank's peak is the promised one where all its steps follow each other; else it is one of those that timing allows.
void check_peak(const Replayed& ranks, const Problem& problem, const Plan& plan) {
  const MemoryId own = problem.platform.devices.front().memory;
  const Bytes measured = ranks.timeline.peaks[own.index].bytes;
  CHECK(measured <= guaranteed_peak(plan.schedule, problem.platform, own));
  if (plan.schedule.streams.size() == 1) CHECK(measured == plan.peak);
}

void check_ranks(const std::string& network, std::string_view spec, std::uint32_t count) {
  INFO(network << ", " << spec << " on " << count);
  constexpr std::uint32_t micro_batches = 4;
  const Problem whole = problem_of(network_model(network), devices(count), {.micro_batches = micro_batches});
  const std::vector<Pass> passes = parse_spec(spec, "test");
  const Problem problem = transformed(whole, passes);
  REQUIRE(problem.mesh);
  CHECK(problem.mesh->ranks() == count);
  const PlanOutcome outcome = plan(problem, passes, std::nullopt);
  REQUIRE(std::holds_alternative<Plan>(outcome));
  const Schedule& schedule = std::get<Plan>(outcome).schedule;
  const Replayed ranks = run_on_ranks(network, problem, schedule);
  check_same(ranks, trained_alone(network, micro_batches));
  check_peak(ranks, problem, std::get<Plan>(outcome));
  const Replayed again = run_on_ranks(network, problem, schedule);
  CHECK(differing(ranks, again).empty());
  CHECK(ranks.values.size() == again.values.size());
}

}  // namespace

TEST_CASE("ranks train what one device trains, the same bits each time", "[validate][eleventh-7]") {
  const std::string network = GENERATE(ranked_mlp, ranked_gpt);
  const std::uint32_t count = GENERATE(2U, 4U);
  const char* spec =
      GENERATE("data_parallel", "data_parallel(buckets=off)", "zero1", "zero2", "zero3", "zero3(prefetch=0)",
               "zero3(reshard_after_forward=no)", "zero3(reshard_after_forward=2)",
               "zero3(reshard_after_forward=2)|greedy_recompute", "data_parallel(ranks=2)|zero3(ranks=2)",
               "megatron(sequence=yes,asynchronous=yes)", "megatron(sequence=yes,asynchronous=yes)|greedy_recompute",
               "megatron(tensor=2,sequence=yes,asynchronous=yes)|zero1",
               "context(ranks=2,way=all_to_all)|megatron(tensor=2,sequence=yes,asynchronous=yes)", "megatron",
               "megatron(sequence=yes)", "hsm2dl", "optcnn", "megatron(tensor=2)|zero1", "megatron(tensor=2)|zero3",
               "zero1|greedy_recompute", "context(way=all_to_all)", "context(way=all_to_all)|greedy_recompute",
               "context(ranks=2,way=all_to_all)|megatron(tensor=2)");
  const auto has = [&](const char* text) { return std::string_view(spec).find(text) != std::string_view::npos; };
  if (network == ranked_mlp && (has("context") || has("asynchronous"))) return;  // has no attention, no positions
  if (count == 2 && (has("tensor=2") || has("ranks=2)|"))) return;
  check_ranks(network, spec, count);
}

TEST_CASE("ranks that share out the positions of fused attention train what one device trains",
          "[validate][eleventh-7]") {
  const std::uint32_t count = GENERATE(2U, 4U);
  const char* spec = GENERATE("context(way=ring)", "context", "context(way=all_to_all)",
                              "context(way=ring)|greedy_recompute", "context|greedy_recompute", "megatron",
                              "megatron(sequence=yes,asynchronous=yes)", "context(ranks=2,way=ring)|megatron(tensor=2)",
                              "context(ranks=2,way=ring)|megatron(tensor=2,sequence=yes)",
                              "context(ranks=2)|megatron(tensor=2,sequence=yes,asynchronous=yes)",
                              "context(ranks=2,way=ring)|data_parallel", "context(ranks=2)|zero1");
  const auto has = [&](const char* text) { return std::string_view(spec).find(text) != std::string_view::npos; };
  if (count == 2 && has("ranks=2")) return;
  check_ranks(ranked_fused, spec, count);
}

TEST_CASE("ranks that share out groups of heads train what one device trains", "[validate]") {
  check_ranks(ranked_decoder, GENERATE("zero3", "megatron", "megatron(sequence=yes)", "context(way=all_to_all)"), 2);
}

TEST_CASE("under a causal mask a rank has pieces of a sequence from either end, where keys go round or are gathered",
          "[validate]") {
  const Problem whole = problem_of(network_model(ranked_fused), devices(2), {.micro_batches = 2});
  const Network network = named_network(ranked_fused).network;
  using Positions = std::vector<std::int64_t>;
  const auto of_first = [&](const char* spec) {
    const Problem problem = transformed(whole, parse_spec(spec, "test"));
    const auto layouts = rank_layouts(network.graph, problem.graph, *problem.mesh);
    if (const std::string* why = std::get_if<std::string>(&layouts)) FAIL(*why);
    return indices_of(std::get<std::vector<RankLayout>>(layouts)[network.boundaries.front().index], *problem.mesh, 0,
                      1);
  };
  CHECK(of_first("context(way=ring)") == Positions{0, 1, 2, 3, 12, 13, 14, 15});
  CHECK(of_first("context(way=all_gather)") == Positions{0, 1, 2, 3, 12, 13, 14, 15});
  CHECK(of_first("context(way=all_to_all)") == Positions{0, 1, 2, 3, 4, 5, 6, 7});
}

TEST_CASE("networks whose ops are cut at random train what one device trains", "[validate]") {
  const std::string network = GENERATE(ranked_mlp, ranked_gpt, ranked_decoder);
  const Replayed one = trained_alone(network, 2);
  const Problem whole = problem_of(network_model(network), devices(4), {.micro_batches = 2});
  std::size_t cut = 0;
  for (const RandomCase seed : random_cases(1, 12)) {
    INFO(network);
    Random random(seed + 31);
    SplitPlan plan{{{{"outer", 2}, {"inner", 2}}}, {}};
    plan.cuts.assign(whole.graph.ops.size(), std::vector<std::optional<std::uint8_t>>(2));
    const auto loop_in = [&](OpId op) { return std::get<OpLoop>(loop_of(whole.graph, op)); };
    for (const Operator& each : operators_of(whole.graph)) {  // backwards as their forwards, by names
      const OpLoop loop = loop_in(each.forward);
      auto& cuts = plan.cuts[each.forward.index];
      for (std::size_t a = 0; a < 2; ++a) {
        const auto d = static_cast<std::uint8_t>(random.below(static_cast<std::uint32_t>(loop.dims.size())));
        const std::int64_t ranks = a == 1 && cuts[0] == d ? 4 : 2;
        bool can_be = loop.dims[d].size % ranks == 0;
        for (const LoopDim& dim : loop.dims) can_be = can_be && (dim.name != loop.dims[d].name || dim.cuttable);
        for (const OpId op : each.backward) {
          const OpLoop other = loop_in(op);
          const auto same = other.dim(loop.dims[d].name);
          can_be = can_be && (!same || other.dims[*same].cuttable);
        }
        if (!can_be) continue;
        cuts[a] = d;
        ++cut;
        for (const OpId op : each.backward) plan.cuts[op.index][a] = loop_in(op).dim(loop.dims[d].name);
      }
    }
    cut_followers(whole.graph, plan);
    const auto made = on_mesh(whole, plan);
    if (const std::string* why = std::get_if<std::string>(&made)) FAIL(*why);
    const Problem problem = for_planners(std::get<Problem>(made), false, Backward::whole, "test");
    const PlanOutcome outcome = plimsoll::plan(problem, parse_spec("store_all", "test"), std::nullopt);
    check_same(run_on_ranks(network, problem, std::get<Plan>(outcome).schedule), one);
  }
  if (all_cases()) CHECK(cut > 150);
}

TEST_CASE("ranks that cannot run a plan say why", "[validate]") {
  const auto why = [](const std::string& network, const char* spec) {
    const std::vector<Pass> passes = parse_spec(spec, "test");
    const Problem whole =
        problem_of(network_model(network), devices(2),
                   {.micro_batches = 2, .optimizer = Optimizer::sgd, .backward = backward_for(passes)});
    BlockPool pool;
    const auto made = network_on_ranks(named_network(network).network, transformed(whole, passes), pool);
    const auto* failure = std::get_if<ReplayFailure>(&made);
    return failure == nullptr ? std::string() : failure->what;
  };
  CHECK(
      why("mlp:layers=4,width=16", "data_parallel|rotor") ==
      "'mlp:layers=4,width=16' is planned by stages, within which ranks exchange: the replay runs ranks of a graph of "
      "ops only");
  CHECK(why("decoder:layers=1,tied=yes,view=graph", "zero3") ==
        "'head.linear' has the weight of another layer (tied=yes), which ranks of the replay do not share out");
  CHECK(why("lstm:steps=3,width=8,view=graph", "data_parallel") ==
        "the network has several ops 'step1.gates input gradient'");
}

TEST_CASE("ranks refuse plans whose gradients are approximations", "[validate]") {
  const Problem whole = problem_of(network_model(ranked_mlp), devices(2), {.micro_batches = 2});
  for (const char* spec : {"data_parallel|quantize", "megatron|quantize"}) {
    INFO(spec);
    const std::vector<Pass> passes = parse_spec(spec, "test");
    const Problem problem = transformed(whole, passes);
    const PlanOutcome outcome = plan(problem, passes, std::nullopt);
    REQUIRE(std::holds_alternative<Plan>(outcome));
    BlockPool pool;
    const auto made = network_on_ranks(named_network(ranked_mlp).network, problem, pool);
    REQUIRE(std::holds_alternative<std::unique_ptr<RunnableNetwork>>(made));
    const auto ran =
        replay(problem, std::get<Plan>(outcome).schedule, *std::get<std::unique_ptr<RunnableNetwork>>(made), {});
    const auto* failure = std::get_if<ReplayFailure>(&ran);
    REQUIRE(failure != nullptr);
    CHECK_THAT(failure->what, Catch::Contains("is made from approximations: ranks have parts and summands of "
                                              "gradients, of which the replay measures no errors"));
  }
}

}  // namespace plimsoll
