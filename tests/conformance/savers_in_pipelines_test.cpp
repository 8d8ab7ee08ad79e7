// Memory savers that plan whole models, in the parts of pipelines: every schedule is legal, keeps its promise in both
// engines and its budget, and less memory is never faster. And pipelines whose micro-batches wait elsewhere.

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <string>

#include "sim/io/input_error.h"
#include "tests/conformance/judged_pipelines.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"
#include "tests/strategies/pipelining/equal_pipelines.h"

namespace plimsoll {
namespace {

constexpr const char* pipelines_with_savers[] = {
    "gpipe",  "1f1b",  "1f1b(backward=split)", "interleaved",      "zb_h1", "zb_v", "chimera",
    "hanayo", "bpipe", "pipeoffload",          "seq1f1b(slices=2)"};
constexpr const char* savers[] = {"offload_greedy",
                                  "offload_fractional",
                                  "offload_dp",
                                  "vdnn",
                                  "capuchin",
                                  "save_on_cpu",
                                  "superneurons",
                                  "min_cut",
                                  "greedy_recompute",
                                  "ap_sqrt",
                                  "zero_offload",
                                  "twinflow",
                                  "demand_layering(lead=6)",
                                  "selective|offload_greedy",
                                  "rotor|offload_fractional",
                                  "full_recompute|zero_offload",
                                  "offload_greedy|zero_offload"};

/// Stages of unequal times and sizes, each with parameters of its own.
Problem pipeline_to_save_in(std::uint64_t seed, const std::vector<Pass>& passes) {
  Random random(seed);
  const bool both_ways = passes[0].strategy->name == "chimera";
  const std::uint32_t devices = both_ways ? 2 : random.between(1, 4);
  Chain chain = random_small_chain(seed, random.between(2 * devices, 2 * devices + 4));
  if (chain.parameters.empty()) chain.parameters.push_back({.name = "w", .bytes = Bytes{3}});
  chain = with_own_parameters(std::move(chain));
  const Gpus machine{.count = devices,
                     .to_host = BytesPerSecond{8},
                     .to_peers = BytesPerSecond{16},
                     .peer_latency = Seconds{0.25},
                     .adam = BytesPerSecond{8}};
  return problem_of(with_weight_times(std::move(chain)), gpus(machine),
                    {.micro_batches = both_ways ? 2 * random.between(1, 2) : random.between(1, 6),
                     .optimizer = Optimizer::momentum,
                     .gradients = random.chance(0.5) ? Gradients::fresh : Gradients::existing,
                     .backward = backward_for(passes)});
}

TEST_CASE("savers that plan whole models, in parts of pipelines, within budgets", "[pipelining][turn-16]") {
  std::size_t saved = 0;
  for (const std::uint64_t seed : fewer_cases(1, 30)) {
    for (std::size_t k = 0; k < std::size(savers); ++k) {
      const std::string pipe = pipelines_with_savers[(seed + k) % std::size(pipelines_with_savers)];
      const bool waits_away = pipe == "bpipe" || pipe == "pipeoffload";
      const std::string spec = pipe + "|" + (waits_away ? "rotor" : savers[k]);
      INFO(spec << ", seed " << seed);
      const std::vector<Pass> passes = parse_spec(spec, "test");
      const Problem problem = transformed(pipeline_to_save_in(seed, passes), passes);
      if (pipe == "chimera" && passes.back().strategy->moves_parameters()) {
        CHECK_THROWS_AS(plan(problem, passes, std::nullopt), InputError);  // each copy's gradients are summed
        continue;
      }
      const Plan all = std::get<Plan>(plan(problem, passes, std::nullopt));
      judge_plan(problem, all, std::nullopt);
      const Plan plain = std::get<Plan>(plan(problem, std::span(passes).first(1), std::nullopt));
      const std::string_view last = passes.back().strategy->name;
      if (last == "offload_greedy" || last == "offload_fractional") CHECK(all.makespan <= plain.makespan);
      const PlanOutcome nothing = plan(problem, passes, Bytes{0});
      const auto* least = std::get_if<Infeasible>(&nothing);
      if (least == nullptr) continue;
      REQUIRE(least->smallest.has_value());
      saved += *least->smallest < plain.peak ? 1 : 0;
      std::optional<Seconds> before;
      std::vector<std::optional<Bytes>> budgets;
      for (std::uint32_t step = 0; step <= 2; ++step) {
        budgets.emplace_back(*least->smallest +
                             range_of(std::max(all.peak, *least->smallest) - *least->smallest, {step, 2}).offset);
      }
      for (const PlanOutcome& outcome : plan(problem, passes, budgets)) {
        REQUIRE(std::holds_alternative<Plan>(outcome));
        const Plan& made = std::get<Plan>(outcome);
        judge_plan(problem, made, made.schedule.budget);
        if (before) CHECK(made.makespan <= *before);
        before = made.makespan;
      }
    }
  }
  if (all_cases()) CHECK(saved > cases_of(100U));
}

/// What the part before leaves on the device is no input that may be read before the part's turn.
TEST_CASE("searches over all orders, in parts behind another part of their device", "[pipelining]") {
  for (const RandomCase seed : random_cases(1, 3)) {
    for (const std::string spec : {"hanayo|exact", "chimera|exact", "dualpipe|exact", "hanayo|checkmate_lp"}) {
      INFO(spec << ", seed " << seed);
      const std::vector<Pass> passes = parse_spec(spec, "test");
      const Chain chain = with_own_parameters(with_weight_times(random_small_chain(seed, 6)));
      const Problem problem = problem_of(chain, gpus({.count = 2, .to_peers = BytesPerSecond{16}}),
                                         {.micro_batches = 4, .backward = backward_for(passes)});
      judge_plan(problem, std::get<Plan>(plan(problem, passes, std::nullopt)), std::nullopt);
    }
  }
}

/// What passes parts by comes back to a device where it is still kept for a backward.
TEST_CASE("graphs whose values pass stages by, in pipelines with several parts a device", "[pipelining][eleventh-7]") {
  std::size_t planned = 0;
  for (const RandomCase seed : random_cases(1, 4)) {
    for (const std::string pipe : {"hanayo", "interleaved", "v_min", "v_half", "zb_v", "dualpipe_v"}) {
      for (const std::string saver : {"", "|dtr", "|rotor", "|offload_greedy"}) {
        INFO(pipe << saver << ", seed " << seed);
        const std::vector<Pass> passes = parse_spec(pipe + saver, "test");
        const Gpus machine{.count = 2, .to_host = BytesPerSecond{16}, .to_peers = BytesPerSecond{16}};
        auto made =
            make_problem(random_graph(seed, 9), gpus(machine), {.micro_batches = 4, .backward = backward_for(passes)});
        if (std::holds_alternative<std::string>(made)) continue;
        const Problem problem = transformed(std::get<Problem>(std::move(made)), passes);
        try {
          judge_plan(problem, std::get<Plan>(plan(problem, passes, std::nullopt)), std::nullopt);
          ++planned;
        } catch (const InputError&) {
          continue;  // a graph of too few stages that are trained
        }
      }
    }
  }
  if (all_cases()) CHECK(planned > 40);
}

TEST_CASE("rotor in pipelines of backwards in two parts, each with workspaces of its own", "[pipelining]") {
  for (const std::uint64_t seed : fewer_cases(1, 60)) {
    INFO("seed " << seed);
    const std::vector<Pass> passes = parse_spec("1f1b(backward=split)|rotor", "test");
    const Problem problem = pipeline_to_save_in(seed, passes);
    const PlanOutcome nothing = plan(problem, passes, Bytes{0});
    const auto* least = std::get_if<Infeasible>(&nothing);
    if (least == nullptr) continue;
    const PlanOutcome made = plan(problem, passes, least->smallest);
    REQUIRE(std::holds_alternative<Plan>(made));
    judge_plan(problem, std::get<Plan>(made), least->smallest);
  }
}

TEST_CASE("what a part offloads on a link with time enough costs a pipeline no time", "[pipelining]") {
  for (const std::uint32_t p : {4U, 6U}) {
    INFO("p " << p);
    const std::vector<Pass> passes = parse_spec("1f1b|offload_greedy(chunks=1)", "test");
    const Problem problem = problem_of(equal_stages(2 * p, {}), gpus({.count = p, .to_host = BytesPerSecond{12}}),
                                       {.micro_batches = 3 * p});
    const Plan plain = std::get<Plan>(plan(problem, std::span(passes).first(1), std::nullopt));
    const Bytes budget{plain.peak.count * 3 / 4};
    const PlanOutcome made = plan(problem, passes, budget);
    REQUIRE(std::holds_alternative<Plan>(made));
    CHECK(std::get<Plan>(made).makespan == plain.makespan);
    judge_plan(problem, std::get<Plan>(made), budget);
  }
  // One stage a part: what comes back does so while another turn runs; right before its backward it would take longer.
  const std::vector<Pass> passes = parse_spec("1f1b|offload_greedy(chunks=1)", "test");
  const Problem problem =
      problem_of(equal_stages(4, {}), gpus({.count = 4, .to_host = BytesPerSecond{12}}), {.micro_batches = 12});
  CHECK(std::get<Plan>(plan(problem, passes, Bytes{18})).makespan ==
        std::get<Plan>(plan(problem, passes, std::nullopt)).makespan);
}

TEST_CASE("parameters that several parts use stay, and others are updated on the host", "[pipelining]") {
  Chain chain = equal_stages(4, {});
  chain.parameters = {{.name = "shared", .bytes = Bytes{10}}, {.name = "own", .bytes = Bytes{20}}};
  chain.stages[0].parameters = {0, 1};
  chain.stages[3].parameters = {0};
  const Gpus machine{.count = 2, .to_host = BytesPerSecond{8}, .adam = BytesPerSecond{8}};
  const Problem problem = problem_of(chain, gpus(machine), {.micro_batches = 3, .optimizer = Optimizer::momentum});
  const Plan made = std::get<Plan>(plan(problem, parse_spec("1f1b|zero_offload", "test"), std::nullopt));
  judge_plan(problem, made, std::nullopt);
  std::map<std::string, bool> on_host;
  for (const Step& step : made.schedule.steps) {
    if (step.kind != StepKind::update) continue;
    on_host[problem.graph[step.op].name] = made.schedule[step.stream].way.computes_elsewhere();
  }
  CHECK(on_host == std::map<std::string, bool>{{"update of own", true}, {"update of shared", false}});
  CHECK_THROWS_WITH(plan(problem, parse_spec("1f1b|demand_layering", "test"), std::nullopt),
                    Catch::Contains("'shared' is used by several parts"));
}

TEST_CASE("bpipe: no device keeps more than (p + 2) / 2 micro-batches, in 1f1b's time", "[pipelining]") {
  for (const std::uint32_t p : {2U, 3U, 4U, 5U, 8U, 9U}) {
    for (const std::uint32_t m : {1U, 3U, 4U, 8U, 17U}) {
      INFO("p " << p << ", m " << m);
      const Run balanced = run_of("bpipe", p, p, m, {}), one = run_of("1f1b", p, p, m, {});
      CHECK(balanced.makespan == one.makespan);
      const std::uint32_t most = (p + 3) / 2;
      for (std::uint32_t s = 0; s < p; ++s) {
        const std::uint32_t own = std::min(p - s, m);
        CHECK(balanced.peaks[s] <= Bytes{6 * std::int64_t{most}});
        if (own >= most && m > p) CHECK(balanced.peaks[s] == Bytes{6 * std::int64_t{most}});
      }
    }
  }
}

TEST_CASE("pipeoffload: nothing away is interleaved, more away needs less, on links that take no time",
          "[pipelining]") {
  for (const std::uint32_t p : {2U, 4U}) {
    for (const std::uint32_t v : {1U, 2U, 3U}) {
      INFO("p " << p << ", v " << v);
      const std::string chunks = "chunks=" + std::to_string(v);
      const auto run = [&](const std::string& spec) { return run_of(spec, p, p * v, 3 * p, {}); };
      const Run inside = run("interleaved(" + chunks + ")"), none = run("pipeoffload(" + chunks + ",share=0)");
      CHECK(none.makespan == inside.makespan);
      CHECK(none.peaks == inside.peaks);
      const Run half = run("pipeoffload(" + chunks + ")"), all = run("pipeoffload(" + chunks + ",share=1)");
      CHECK(half.makespan == inside.makespan);
      CHECK(all.makespan == inside.makespan);
      CHECK(half.peaks[0] <= inside.peaks[0]);
      if (p * v > 2) CHECK(half.peaks[0] < inside.peaks[0]);
      CHECK(all.peaks[0] <= half.peaks[0]);
      CHECK(all.peaks[0] <= Bytes{4 * 6});  // the one that runs, one back early, one forward that leaves
    }
  }
}

TEST_CASE("seq1f1b: (m + (p - 1) / k)(F + B), and p - s - 1 + k slices kept; one slice is 1f1b", "[pipelining]") {
  for (const std::uint32_t p : {1U, 2U, 3U, 5U}) {
    for (const std::uint32_t m : {1U, 2U, 5U}) {
      for (const std::uint32_t k : {1U, 2U, 3U, 4U}) {
        INFO("p " << p << ", m " << m << ", k " << k);
        const std::vector<Pass> passes = parse_spec("seq1f1b(slices=" + std::to_string(k) + ")", "test");
        const Problem problem =
            transformed(problem_of(equal_stages(p, {}, {12, 12}), gpus({.count = p}), {.micro_batches = m}), passes);
        CHECK(problem.micro_batches == m * k);
        const Plan made = std::get<Plan>(plan(problem, passes, std::nullopt));
        REQUIRE(check(made.schedule, problem.graph, problem.platform).empty());
        const Timeline timeline = simulate_event(made.schedule, problem.platform);
        CHECK(timeline.makespan.value == Approx((m + (p - 1.0) / k) * 3).epsilon(1e-12));
        std::map<std::pair<OpId, std::uint32_t>, std::uint32_t> last;  // by op and sequence: its slice
        for (const Step& step : made.schedule.steps) {
          if (step.op == no_op) continue;
          const std::uint32_t sequence = step.micro_batch / k, slice = step.micro_batch % k;
          const bool is_forward = problem.graph[step.op].phase == Phase::forward;
          const auto [at, first] = last.try_emplace({step.op, sequence}, slice);
          CHECK(slice == (first ? (is_forward ? 0 : k - 1) : is_forward ? at->second + 1 : at->second - 1));
          at->second = slice;
        }
        for (std::uint32_t s = 0; s < p; ++s) {
          CHECK(timeline.peaks[s].bytes == Bytes{12 / k * std::int64_t{std::min(p - s - 1 + k, m * k)}});
        }
        if (k > 1) continue;
        const Run one = run_of("1f1b", p, p, m, {}, {12, 12});
        CHECK(one.makespan == timeline.makespan);
        CHECK(one.schedule.steps.size() == made.schedule.steps.size());
      }
    }
  }
}

}  // namespace
}  // namespace plimsoll
