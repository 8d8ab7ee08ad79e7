// Rules that every registered strategy obeys, on random problems: legal, deterministic, never below a lower bound,
// within the budget or infeasible with the smallest feasible budget, monotone, and as promised.

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <set>

#include "platforms/platform_file.h"
#include "sim/engine/event/event_engine.h"
#include "sim/engine/simgrid/simgrid_engine.h"
#include "sim/io/input_error.h"
#include "sim/io/schedule/schedule_file.h"
#include "sim/judge/check.h"
#include "sim/measure/metrics.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "strategies/list.h"
#include "tests/generate/bound_of_schedule.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"
#include "traces/imports/framework_graphs.h"
#include "traces/models/synthetic.h"

namespace plimsoll {
namespace {

/// For layers that random graphs need not have: they are in compression_test.cpp.
constexpr std::array<std::string_view, 3> for_some_layers{"approx_bp", "fewbit", "wta_crs"};

/// All but those, and but pipelines that a single device cannot run with any number of micro-batches or with gradients
/// that exist, or not without a file: they are in pipelining_plans_test.cpp and below.
constexpr std::array<std::string_view, 6> pipelines_only{"chimera", "dualpipe",  "dualpipe_v",
                                                         "order",   "pipedream", "pipedream_2bw"};
std::vector<const StrategyInfo*> strategies_here() {
  std::vector<const StrategyInfo*> list;
  for (const StrategyInfo* strategy : strategies()) {
    const auto is_among = [&](const auto& names) { return std::ranges::find(names, strategy->name) != names.end(); };
    const bool is_hybrid = strategy->family == Family::hybrid;  // tests/hybrid/hybrid_plans_test.cpp
    if (!is_hybrid && !is_among(pipelines_only) && !is_among(for_some_layers)) list.push_back(strategy);
  }
  return list;
}

/// Of one of them: its defaults, but for what random problems need not have.
std::string defaults_of(const StrategyInfo& strategy) {
  const auto has = [&](std::string_view name) { return strategy.options.find(name) != nullptr; };
  const bool chooses_tensors = strategy.family == Family::compression && has("tensors"),
             chooses_ops = strategy.family == Family::transform && has("ops");
  return std::string(strategy.name) + (chooses_tensors ? "(tensors=all)" : chooses_ops ? "(ops=*)" : "");
}

/// Each of them so, and with options that change what it promises.
std::vector<std::string> specs() {
  std::vector<std::string> list;
  for (const StrategyInfo* strategy : strategies_here()) list.push_back(defaults_of(*strategy));
  list.insert(list.end(), {"rotor(slots=500)",
                           "rotor(slots=9)",
                           "chen_sqrt(segments=1)",
                           "chen_sqrt(segments=3)",
                           "chen_greedy(b=9B)",
                           "ap_sqrt(points=all)",
                           "ap_greedy(points=all)",
                           "checkmate(formulation=kappa)",
                           "revolve(slots=2)",
                           "revolve_hetero(slots=9)",
                           "rotor_floating(slots=9)",
                           "rockmate(slots=9)",
                           "rockmate(block=2, options=3)",
                           "periodic(every=2)",
                           "full_recompute(method=block, layers=2)",
                           "selective(every=2)",
                           "selective(keep_every=2)",
                           "knapsack(solver=greedy)",
                           "min_cut(ban=none)",
                           "min_cut(distance=off)",
                           "dtr(heuristic=dtr_eq)",
                           "dtr(heuristic=lru, release=banish)",
                           "vdnn(mode=all)",
                           "vdnn(mode=conv)",
                           "superneurons(recompute=memory)",
                           "capuchin(recompute=off)",
                           "offload_greedy(chunks=1)",
                           "sparse_update(train=last:2)",
                           "sparse_update(train=all)",
                           "adam8bit(least=2)",
                           "adafactor(momentum=on)",
                           "galore(rank=2, bits=8)",
                           "galore(step=refresh)",
                           "channel_prune(ratio=0.3)",
                           "patch(patches=4)",
                           "seer(layers=1)",
                           "seer(phase=before)",
                           "offmate(steps=3, lead=0, overlap=off)",
                           "demand_layering(lead=1, overlap=on)",
                           "demand_layering(lead=0, from=disk)",
                           "quantize(bits=1, group=8)",
                           "quantize(tensors=all, relu=keep)",
                           "quantize(tensors=all+relu.output+checkpoint)",
                           "pool(tensors=all, k=4, relu=byte)",
                           "pool(tensors=all, relu=keep)",
                           "prune_bsr(block=2, keep=0.5, tensors=all)",
                           "prune_bsr(block=2, keep=0.5, tensors=all, product=0.5)",
                           "gact(every=10)",
                           "lossless(tensors=all, nonzero=0.3)"});
  return list;
}

/// Sanitizers cost a factor of ten; what is left out is printed.
std::uint64_t seeds(std::uint64_t all) {
#if defined(__SANITIZE_ADDRESS__)
  WARN("with sanitizers: " << all / 10 << " of " << all << " random problems a strategy");
  return all / 10;
#else
  return all;
#endif
}

struct Case {
  Problem problem;
  std::string what;
};

Platform machine_for(const StrategyInfo& strategy) {
  if (!strategy.moves_parameters()) return gpus({});
  return gpus({.to_host = {16}, .adam = BytesPerSecond{8}, .to_disk = BytesPerSecond{8}});
}

void train_something(Chain& chain) {
  if (std::ranges::any_of(chain.stages, [](const Stage& stage) { return !stage.parameters.empty(); })) return;
  chain.stages[0].parameters = {static_cast<std::uint32_t>(chain.parameters.size())};
  chain.parameters.push_back({"w", Bytes{3}});
}

/// Transforms that ask for the shapes of parameters get a network that has them.
Case case_with_shapes(std::uint64_t seed, const std::vector<Pass>& passes) {
  Random random(seed);
  const ProblemOptions options{.micro_batches = random.between(1, 2),
                               .optimizer = Optimizer::adam,
                               .gradients = random.chance(0.7) ? Gradients::fresh : Gradients::existing};
  const std::string network = passes.front().strategy->name == "shared_norm" ? "deit_ti" : "resnet18";  // with norms
  const std::string model = network + ":size=32,batch=" + std::to_string(random.between(1, 3));
  return {transformed(problem_of(framework_graph(model), load_platform("h200"), options), passes), model};
}

/// As the transforms among the passes leave it.
Case any_random_case(std::uint64_t seed, const std::vector<Pass>& passes) {
  const StrategyInfo& strategy = *passes.front().strategy;
  Random random(seed);
  const ProblemOptions options{
      .micro_batches = random.chance(0.7) ? 1 : random.between(2, 3),
      .optimizer = random.chance(0.6) && !strategy.needs_updates ? Optimizer::none : Optimizer::adam,
      .gradients = random.chance(0.7) ? Gradients::fresh : Gradients::existing,
      .backward = backward_for(passes)};
  const bool packs = strategy.family == Family::compression;
  const bool graph = packs || (!strategy.chains_only && random.chance(0.5) && !strategy.needs_updates);
  const bool trains = strategy.needs_updates || changes_problem(strategy);
  Graph made;
  if (graph) made = random_graph(seed, random.between(1, strategy.effort.trials.ops));
  if (!graph || (trains && bytes_of_kind(made, TensorKind::parameter) == Bytes{0})) {
    Chain chain = random_small_chain(seed, random.between(1, strategy.effort.trials.stages));
    if (trains) train_something(chain);
    if (strategy.family == Family::transform) chain.source.dtype = "fp32";
    if (options.backward == Backward::split) chain = with_weight_times(std::move(chain));
    if (random.chance(0.3)) chain.plain = PlainTraining{0.75 * all_alone(chain), all_alone(chain)};
    return {transformed(problem_of(chain, machine_for(strategy), options), passes), "chain"};
  }
  const ProblemOptions without{.micro_batches = options.micro_batches, .gradients = options.gradients};
  if (strategy.name == "monet") made = with_alternatives(std::move(made), seed);
  if (packs) made = as_pictures(std::move(made), seed);
  return {transformed(problem_of(std::move(made), machine_for(strategy), without), passes), "graph"};
}

std::optional<Case> possible_case(std::uint64_t seed, const std::vector<Pass>& passes) {
  if (passes.front().strategy->family != Family::transform) return any_random_case(seed, passes);
  try {
    return any_random_case(seed, passes);
  } catch (const InputError&) {
    return std::nullopt;
  }
}

/// Of a later seed where the transforms refuse that one's.
Case random_case(std::uint64_t seed, const std::vector<Pass>& passes) {
  if (passes.front().strategy->needs_shapes) return case_with_shapes(seed, passes);
  for (std::uint64_t later = seed;; later += 1000) {
    if (std::optional<Case> made = possible_case(later, passes)) return *std::move(made);
    REQUIRE(later < seed + 100'000);
  }
}

void judge_answer(const Problem& problem, const Plan& made, std::optional<Bytes> budget) {
  const std::vector<Violation> found = check(made.schedule, problem.graph, problem.platform, 1);
  INFO((found.empty() ? std::string() : found[0].what));
  REQUIRE(found.empty());
  const Timeline timeline = simulate_event(made.schedule, problem.platform);
  const Metrics metrics = measure(problem, made.schedule, timeline);
  CHECK(metrics.peak == made.peak);
  CHECK(metrics.makespan.value == Approx(made.makespan.value).epsilon(1e-9));
  CHECK((!budget || metrics.peak <= *budget));
  const std::vector<Bytes> counted = recount(made.schedule, timeline, problem.platform);
  for (std::size_t m = 0; m < counted.size(); ++m) CHECK(counted[m] == timeline.peaks[m].bytes);
  const Stays stays = stays_in(made.schedule, problem.graph, problem.platform);
  const LowerBounds bounds = lower_bounds(problem, devices_used(made.schedule), stays, made.schedule.codecs);
  CHECK(metrics.makespan.value >= bounds.time().value * (1 - 1e-12));
  CHECK(metrics.peak >= bounds.memory);
  CHECK(metrics.makespan.value >= bound_of(problem, made.schedule, made.peak).value * (1 - 1e-12));
}

/// The smallest feasible budget, as an answer to nothing names it.
Bytes smallest_feasible(const Problem& problem, const std::vector<Pass>& passes) {
  const PlanOutcome nothing = plan(problem, passes, Bytes{0});
  if (std::holds_alternative<Plan>(nothing)) return Bytes{0};
  REQUIRE(std::get<Infeasible>(nothing).smallest);
  return *std::get<Infeasible>(nothing).smallest;
}

TEST_CASE("every strategy is legal, keeps its promise and its budget, and never beats a lower bound", "[conformance]") {
  const std::uint64_t count = seeds(100);
  for (const std::string& spec : specs()) {
    const std::vector<Pass> passes = parse_spec(spec, "test");
    const Trials& effort = passes[0].strategy->effort.trials;
    for (const RandomCase seed : fewer_cases(1, std::min(count, effort.problems), 33)) {
      const Case given = random_case(seed, passes);
      INFO(spec << " on a " << given.what << ", seed " << seed);
      const PlanOutcome unlimited = plan(given.problem, passes, std::nullopt);
      REQUIRE(std::holds_alternative<Plan>(unlimited));
      const auto& free = std::get<Plan>(unlimited);
      judge_answer(given.problem, free, std::nullopt);

      const Bytes least = smallest_feasible(given.problem, passes);
      if (least > Bytes{0}) {
        const PlanOutcome below = plan(given.problem, passes, least - Bytes{1});
        REQUIRE(std::holds_alternative<Infeasible>(below));
        CHECK(std::get<Infeasible>(below).smallest == least);
      }
      REQUIRE(least <= free.peak);
      std::vector<std::optional<Bytes>> budgets;  // from there to the unlimited plan's peak
      for (Bytes budget = least; budget < free.peak; budget += Bytes{effort.stride}) budgets.emplace_back(budget);
      budgets.emplace_back(free.peak);
      const std::vector<PlanOutcome> outcomes = plan(given.problem, passes, budgets);
      double slower = free.makespan.value;
      for (std::size_t b = budgets.size(); b-- > 0;) {
        INFO("budget " << budgets[b]->count);
        REQUIRE(std::holds_alternative<Plan>(outcomes[b]));
        const auto& made = std::get<Plan>(outcomes[b]);
        judge_answer(given.problem, made, budgets[b]);
        CHECK(made.makespan.value >= slower * (1 - 1e-9));  // less memory is never faster
        slower = std::max(slower, made.makespan.value);
      }
    }
  }
}

TEST_CASE("with kernels timed as measured strategies for graphs are legal and keep their promise",
          "[conformance][turn-17]") {
  // Norms and products of sizes, fused attention, gradients that later micro-batches add to.
  const auto model =
      synthetic_model("llama:layers=1,width=64,heads=4,kv_heads=2,inner=96,sequence=16,batch=2,vocabulary=48");
  std::size_t judged = 0;
  for (const std::string& spec : specs()) {
    const std::vector<Pass> passes = parse_spec(spec, "test");
    const bool is_for_less = passes[0].strategy->effort.trials.ops <= 8;  // searches of minutes
    if (passes[0].strategy->chains_only || is_for_less) continue;
    INFO(spec);
    try {
      const ProblemOptions options{.micro_batches = 3, .optimizer = Optimizer::adam};
      const Problem problem =
          transformed(problem_of(std::get<Graph>(model), load_platform("h200:efficiency=h200_sxm"), options), passes);
      const PlanOutcome unlimited = plan(problem, passes, std::nullopt);
      const Plan* free = std::get_if<Plan>(&unlimited);
      if (free == nullptr) continue;
      judge_answer(problem, *free, std::nullopt);
      const Bytes budget{free->peak.count * 9 / 10};
      const PlanOutcome within = plan(problem, passes, budget);
      if (const Plan* made = std::get_if<Plan>(&within)) judge_answer(problem, *made, budget);
      ++judged;
    } catch (const InputError&) {  // it is for other graphs
    }
  }
  CHECK(judged > 40);
}

TEST_CASE("every strategy gives the same bytes for the same input, alone or with other budgets",
          "[conformance][eleventh-5]") {
  const std::uint64_t count = seeds(30);
  for (const std::string& spec : specs()) {
    const std::vector<Pass> passes = parse_spec(spec, "test");
    const StrategyInfo& strategy = *passes[0].strategy;
    for (const RandomCase seed : fewer_cases(1, std::min(count, strategy.effort.trials.problems))) {
      const Case given = random_case(seed, passes);
      INFO(spec << ", seed " << seed);
      const Bytes peak = std::get<Plan>(plan(given.problem, passes, std::nullopt)).peak;
      const std::vector<std::optional<Bytes>> budgets{peak, std::nullopt, Bytes{peak.count * 3 / 4}};
      const std::vector<PlanOutcome> together = plan(given.problem, passes, budgets);
      for (std::size_t b = 0; b < budgets.size(); ++b) {
        const PlanOutcome alone = plan(given.problem, passes, budgets[b]);
        REQUIRE(alone.index() == together[b].index());
        const Plan* made = std::get_if<Plan>(&alone);
        if (made == nullptr) continue;
        CHECK(schedule_text(made->schedule, "") == schedule_text(std::get<Plan>(together[b]).schedule, ""));
      }
    }
  }
}

TEST_CASE("at store_all's own peak, rotor is as store_all, whatever boundary tensors backward reads", "[conformance]") {
  const std::vector<Pass> store_all = parse_spec("store_all", "test");
  for (const std::string spec : {"rotor", "rotor(slots=500)"}) {
    for (const RandomCase seed : random_cases(1, 300)) {
      Random random(seed);
      const Problem problem = problem_of(random_small_chain(seed, random.between(1, 12)), gpus({}));
      const PlanOutcome plain = plan(problem, store_all, std::nullopt);
      const auto& stored = std::get<Plan>(plain);
      const PlanOutcome outcome = plan(problem, parse_spec(spec, "test"), stored.peak);
      INFO(spec << ", seed " << seed);
      REQUIRE(std::holds_alternative<Plan>(outcome));
      CHECK(std::get<Plan>(outcome).makespan == stored.makespan);
      // Stage by stage, what adds to the gradient of a shared parameter may take less room than in one call of
      // autograd's.
      std::set<std::uint32_t> seen;
      bool shares = false;
      for (const Stage& stage : problem.chain->stages) {
        for (const std::uint32_t p : stage.parameters) shares |= !seen.insert(p).second;
      }
      CHECK(std::get<Plan>(outcome).peak <= stored.peak);
      if (!shares) CHECK(std::get<Plan>(outcome).peak == stored.peak);
    }
  }
}

/// One for each stage, of numbers that can be counted.
void own_parameters(Chain& chain) {
  chain.source.dtype = "fp32";
  chain.parameters.clear();
  chain.shared.clear();
  for (Stage& stage : chain.stages) {
    stage.parameters = {static_cast<std::uint32_t>(chain.parameters.size())};
    stage.parameter_gradient.reset();
    chain.parameters.push_back({"own" + std::to_string(chain.parameters.size()), Bytes{8}});
  }
}

TEST_CASE("no strategy repeats a stage that must run once", "[conformance][eleventh-9]") {
  for (const StrategyInfo* const listed : strategies_here()) {
    const StrategyInfo& strategy = *listed;
    if (strategy.family == Family::compression || strategy.needs_shapes) continue;  // chains have none
    if (strategy.name == "recompute_ops") continue;                                 // of graphs
    const std::vector<Pass> passes = parse_spec(strategy.name, "test");
    Chain chain = random_small_chain(11, 5);
    if (strategy.family == Family::transform) own_parameters(chain);
    for (Stage& stage : chain.stages) stage.keeps_input = stage.keeps_output = true;
    chain.stages[1].recomputable = chain.stages[3].recomputable = false;
    train_something(chain);
    const ProblemOptions options{.optimizer = Optimizer::adam, .backward = backward_for(passes)};
    const Problem problem =
        transformed(problem_of(with_weight_times(std::move(chain)), machine_for(strategy), options), passes);
    INFO(strategy.name);
    const PlanOutcome outcome = plan(problem, passes, smallest_feasible(problem, passes));
    REQUIRE(std::holds_alternative<Plan>(outcome));
    CHECK(check(std::get<Plan>(outcome).schedule, problem.graph, problem.platform).empty());
  }
}

TEST_CASE("both engines agree on every strategy's schedules", "[conformance][eleventh-2]") {
  for (const std::string& spec : specs()) {
    const std::vector<Pass> passes = parse_spec(spec, "test");
    for (const RandomCase seed : random_cases(1, 10)) {
      const Case given = random_case(seed, passes);
      INFO(spec << ", seed " << seed);
      const PlanOutcome outcome = plan(given.problem, passes, std::nullopt);
      const Schedule& schedule = std::get<Plan>(outcome).schedule;
      const Timeline event = simulate_event(schedule, given.problem.platform);
      const Timeline simgrid = simulate_simgrid(schedule, given.problem.platform);
      CHECK(simgrid.makespan.value == Approx(event.makespan.value).epsilon(1e-9));
      CHECK(simgrid.peaks == event.peaks);
    }
  }
}

TEST_CASE("a schedule reads back from its file as it was written", "[conformance]") {
  for (const StrategyInfo* const strategy : strategies_here()) {
    const std::vector<Pass> passes = parse_spec(defaults_of(*strategy), "test");
    const Case given = random_case(3, passes);
    const PlanOutcome outcome = plan(given.problem, passes, std::nullopt);
    const std::string text = schedule_text(std::get<Plan>(outcome).schedule, "test");
    CHECK(schedule_text(parse_schedule(text, "schedule.json"), "test") == text);
  }
}

TEST_CASE("so does one of several devices, with collectives", "[conformance]") {
  for (const char* spec : {"chimera", "chimera(buckets=5B)", "dualpipe", "dualpipe_v"}) {
    const std::vector<Pass> passes = parse_spec(spec, "test");
    Chain chain = even_chain(5);
    for (std::uint32_t i = 0; i < 5; ++i) {
      chain.stages[i].parameters = {i};
      chain.parameters.push_back({"w" + std::to_string(i), Bytes{3}});
    }
    const Problem problem = problem_of(with_weight_times(std::move(chain)), gpus({.count = 2}),
                                       {.micro_batches = 4, .backward = backward_for(passes)});
    const Plan made = std::get<Plan>(plan(problem, passes, std::nullopt));
    CHECK(made.schedule.collectives.empty() == (spec == std::string_view("dualpipe_v")));
    const std::string text = schedule_text(made.schedule, "test");
    const Schedule read = parse_schedule(text, "schedule.json");
    CHECK(schedule_text(read, "test") == text);
    CHECK(check(read, problem.graph, problem.platform).empty());
  }
}

}  // namespace
}  // namespace plimsoll
