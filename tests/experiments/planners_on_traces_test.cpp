// Planners on the shipped traces, and on Checkmate's networks where they are.

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "experiments/study/run.h"
#include "platforms/platform_file.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "tests/bad_input.h"
#include "tests/experiments/run_program.h"
#include "tests/experiments/temporary_folder.h"
#include "traces/imports/checkmate_graph.h"
#include "traces/trace_file.h"

namespace plimsoll {
namespace {

Problem problem_of_trace(const std::string& trace, const std::string& platform) {
  Question asked;
  asked.trace = trace;
  asked.platform = platform;
  asked.strategy = parse_pipeline("store_all", "test");
  return problem_of(asked);
}

PlanOutcome plan_at(const Problem& problem, const std::string& spec, Bytes budget) {
  const std::optional<Bytes> limit = budget;
  return plan(problem, parse_spec(spec, "test"), limit);
}

double overhead(const Problem& problem, const Plan& made) {
  const std::optional<Bytes> unlimited;
  const PlanOutcome plain = plan(problem, parse_spec("store_all", "test"), unlimited);
  return made.makespan / std::get<Plan>(plain).makespan - 1;
}

TEST_CASE("exact within one second is as fast as rotor where it cannot search", "[exact][eleventh-10]") {
  const auto [trace, budget, percent] = GENERATE(std::tuple("densenet121_b8_cpu", Bytes{240'000'000}, 45.6),
                                                 std::tuple("resnet50_b8_cpu", Bytes{442'406'964}, 24.2));
  const Problem problem = problem_of_trace(trace, "cpu_host");
  INFO(trace);
  const PlanOutcome rotor = plan_at(problem, "rotor", budget), exact = plan_at(problem, "exact(time_limit=1)", budget);
  REQUIRE(std::holds_alternative<Plan>(rotor));
  REQUIRE(std::holds_alternative<Plan>(exact));
  CHECK(std::get<Plan>(exact).makespan <= std::get<Plan>(rotor).makespan);
  CHECK(100 * overhead(problem, std::get<Plan>(exact)) < percent + 0.1);
  CHECK(std::get<Plan>(exact).peak <= budget);
  const auto none = std::get<Infeasible>(plan_at(problem, "exact(time_limit=1)", Bytes{1}));
  CHECK(*none.smallest <= *std::get<Infeasible>(plan_at(problem, "rotor", Bytes{1})).smallest);
}

TEST_CASE("a smallest budget that no search has proven is called 'at most'", "[program]") {
  const std::string asked =
      "simulate --trace random:stages=40,seed=1 --platform ideal --engine event --memory '1 B' --json";
  const ProgramRun searched = plimsoll(asked + " --strategy 'exact(time_limit=1)'");
  CHECK(searched.exit_code == 1);
  CHECK(searched.err.find("; the smallest feasible budget is at most ") != std::string::npos);
  CHECK(searched.out.find("\"smallest_is_proven\": false") != std::string::npos);
  const ProgramRun rotor = plimsoll(asked + " --strategy rotor");
  CHECK(rotor.err.find("at most") == std::string::npos);
  CHECK(rotor.out.find("\"smallest_is_proven\": true") != std::string::npos);
}

/// The V100's platform with another bandwidth between GPU and host.
Problem behind_link(const std::string& trace, double gigabytes_per_second) {
  Question asked;
  asked.trace = trace;
  asked.platform = "v100_pcie";
  asked.strategy = parse_pipeline("store_all", "test");
  Platform platform = read_platform("platforms/v100_pcie.yaml");
  REQUIRE(platform.links.size() == 1);
  platform.links.front().bandwidth = BytesPerSecond{1e9 * gigabytes_per_second};
  return std::get<Problem>(problem_of(asked, read_trace("traces/data/" + trace + ".json"), platform));
}

TEST_CASE("capuchin on a V100 is never slower with a faster link", "[offload][eleventh-3]") {
  for (const std::string trace : {"resnet50_b8_cpu", "densenet121_b8_cpu", "gpt12_w768_t256_b4_cpu"}) {
    const std::vector<Pass> capuchin = parse_spec("capuchin", "test");
    std::vector<double> slower(8, std::numeric_limits<double>::infinity());
    int plans = 0;
    double fastest_gain = 0;
    for (const double bandwidth : {6.0, 12.0, 18.0, 25.0, 35.0, 50.0, 64.0, 100.0, 450.0}) {
      const Problem problem = behind_link(trace, bandwidth);
      const Bytes all =
          std::get<Plan>(
              plan(problem, parse_spec("store_all", "test"), std::vector<std::optional<Bytes>>{std::nullopt}).front())
              .peak;
      std::vector<std::optional<Bytes>> budgets;
      for (int percent = 95; percent > 55; percent -= 5) budgets.emplace_back(Bytes{all.count / 100 * percent});
      const std::vector<PlanOutcome> made = plan(problem, capuchin, budgets);
      for (std::size_t b = 0; b < budgets.size(); ++b) {
        INFO(trace << " at " << bandwidth << " GB/s within " << budgets[b]->count << " B");
        const Plan* found = std::get_if<Plan>(&made[b]);
        CHECK((found != nullptr || slower[b] == std::numeric_limits<double>::infinity()));
        if (found == nullptr) continue;
        CHECK(found->makespan.value <= slower[b] * (1 + 1e-9));
        if (slower[b] < 1e300) fastest_gain = std::max(fastest_gain, 1 - found->makespan.value / slower[b]);
        slower[b] = found->makespan.value;
        ++plans;
      }
    }
    CHECK(plans > 40);
    CHECK(fastest_gain > 0.01);  // the link matters
  }
}

TEST_CASE("cut=joint is faster than any other cut and recomputation", "[joint][turn-23]") {
  Question asked;
  asked.trace = "resnet50_b8_cpu";
  asked.platform = "h100_sxm_8";
  asked.micro_batches = 16;
  asked.strategy = parse_pipeline("1f1b", "test");
  const Problem problem = problem_of(asked);
  const auto makespan = [&](const std::string& cut) {
    const PlanOutcome made = plan_at(problem, "1f1b(stages=4,cut=" + cut + ")|rotor", Bytes{700'000'000});
    REQUIRE(std::holds_alternative<Plan>(made));
    return std::get<Plan>(made).makespan;
  };
  const Seconds joint = makespan("joint");
  for (const char* cut : {"uniform", "balanced", "pipedream", "ideals", "piper", "alpa", "madpipe", "sapp"}) {
    INFO(cut);
    CHECK(joint < 0.95 * makespan(cut));
  }
}

TEST_CASE("min_cut saves memory on every shipped trace", "[min_cut]") {
  for (const std::string& trace : shipped_traces()) {
    const Problem problem = problem_of_trace(trace, trace.starts_with("llama") ? "h200" : "cpu_host");
    INFO(trace);
    const std::optional<Bytes> unlimited;
    const auto plain = std::get<Plan>(plan(problem, parse_spec("store_all", "test"), unlimited));
    const auto none = std::get<Infeasible>(plan_at(problem, "min_cut", Bytes{1}));
    CHECK(*none.smallest < plain.peak);
    const PlanOutcome least = plan_at(problem, "min_cut", *none.smallest);
    REQUIRE(std::holds_alternative<Plan>(least));
    CHECK(std::get<Plan>(least).makespan <= 2.0 * plain.makespan);
    CHECK(std::get<Plan>(plan_at(problem, "min_cut", plain.peak)).makespan == plain.makespan);
  }
}

/// Checkmate's networks, from the folder that PLIMSOLL_REMAT_GRAPHS names; none where there is no such
/// folder.
std::vector<Graph> checkmate_networks() {
  const char* named = std::getenv("PLIMSOLL_REMAT_GRAPHS");
  const std::filesystem::path data = named == nullptr ? "../shared/data/remat_graphs" : named;
  std::vector<Graph> graphs;
  if (!std::filesystem::exists(data)) return graphs;
  for (const std::filesystem::path& file : files_in(data, ".gz")) graphs.push_back(read_checkmate_graph(file));
  return graphs;
}

std::int64_t noted(const Graph& graph, const std::string& key) {
  for (const auto& [name, value] : graph.source.notes) {
    if (name == key) return std::stoll(value);
  }
  FAIL("no note " << key);
  return 0;
}

TEST_CASE("Checkmate's networks: peaks, working sets, and no heuristic faster than what is proven",
          "[checkmate][turn-8]") {
  const TemporaryFolder folder;
  const std::vector<Graph> networks = checkmate_networks();
  if (networks.empty()) {
    WARN("skipped: Checkmate's networks are not in ../shared/data/remat_graphs, and PLIMSOLL_REMAT_GRAPHS names none");
    return;
  }
  CHECK(networks.size() == 7);
  for (const Graph& network : networks) {
    INFO(network.name);
    const std::string trace = folder / "network.json";
    write_trace(trace, Trace{network});
    const Problem problem = problem_of_trace(trace, "ideal");
    const Bytes peak{noted(network, "peak_without_recomputation_bytes")};
    const std::optional<Bytes> unlimited;
    const auto plain = std::get<Plan>(plan(problem, parse_spec("store_all", "test"), unlimited));
    CHECK(plain.peak == peak);
    const Bytes working_set{noted(network, "largest_working_set_bytes")};
    for (const std::int64_t percent : {90, 80, 60, 50}) {
      const Bytes budget{peak.count / 100 * percent};
      const PlanOutcome exact = plan_at(problem, "exact(states=20000, time_limit=1)", budget);
      const Plan* best = std::get_if<Plan>(&exact);
      if (budget < working_set) CHECK(best == nullptr);
      for (const char* spec : {"ap_greedy(points=all)", "greedy_recompute", "rockmate", "min_cut"}) {
        INFO(spec << " at " << percent << " %");
        const PlanOutcome outcome = plan_at(problem, spec, budget);
        const Plan* made = std::get_if<Plan>(&outcome);
        if (made == nullptr) continue;
        CHECK(made->peak <= budget);
        REQUIRE(best != nullptr);
        CHECK(best->makespan.value <= made->makespan.value * (1 + 1e-12));
        CHECK(made->makespan.value >= best->makespan.value / (1 + *best->gap) * (1 - 1e-9));
      }
    }
  }
}

}  // namespace
}  // namespace plimsoll
