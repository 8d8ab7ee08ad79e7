// Placements of random graphs and chains on devices that may be unlike, with memory strategies in their parts: every
// schedule is legal, keeps its promise in both engines and its budget, and less memory is never faster.

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "platforms/platform_file.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "strategies/list.h"
#include "tests/conformance/judged_pipelines.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"
#include "traces/trace_file.h"

namespace plimsoll {
namespace {

constexpr const char* memory_savers[] = {"", "|greedy_recompute", "|offload_greedy", "|dtr", "|ap_sqrt|offload_greedy"};

std::vector<std::string> placements() {
  std::vector<std::string> list;
  for (const StrategyInfo* strategy : strategies()) {
    if (strategy->family != Family::placement) continue;
    list.emplace_back(strategy->name);
    for (const OptionInfo& option : strategy->options) {
      if (option.name == "order") list.push_back(std::string(strategy->name) + "(order=b_level)");
    }
  }
  list.emplace_back("pardnn(memory=2)");
  return list;
}

/// Devices of three speeds: a third of the ops' times, the times themselves, twice as much.
Problem random_placement_problem(std::uint64_t seed) {
  Random random(seed);
  const std::uint32_t devices = random.between(1, 3);
  Graph graph = random_graph(seed, random.between(2, 8));
  graph.source.dtype = "fp32";
  for (Op& op : graph.ops) {
    op.flops = Flops{6 * op.duration->value};
    op.bytes_moved = Bytes{0};
  }
  if (random.chance(0.3)) graph.colocate.push_back({OpId{0}, id_at<OpId>(graph.ops.size() - 1)});
  Platform platform = gpus(
      {.count = devices, .to_host = BytesPerSecond{8}, .to_peers = BytesPerSecond{16}, .peer_latency = Seconds{0.25}});
  for (std::uint32_t d = 1; d < devices && random.chance(0.5); ++d) {
    Device& device = platform.devices[d];
    device.takes_trace_times = false;
    device.peak["fp32"] = FlopsPerSecond{random.chance(0.5) ? 18.0 : 3.0};
    device.memory_bandwidth = BytesPerSecond{1};
  }
  const ProblemOptions options{.micro_batches = random.chance(0.6) ? 1 : random.between(2, 3),
                               .gradients = random.chance(0.5) ? Gradients::fresh : Gradients::existing};
  return problem_of(std::move(graph), std::move(platform), options);
}

TEST_CASE("placements on unlike devices, with memory strategies in their parts, within budgets",
          "[placement][eleventh-10]") {
  const std::vector<std::string> all = placements();
  for (const std::uint64_t seed : fewer_cases(1, 60)) {
    const Problem problem = random_placement_problem(seed);
    for (std::size_t k = 0; k < all.size(); ++k) {
      const std::string spec = all[k] + memory_savers[(seed / 11 + k) % std::size(memory_savers)];
      INFO(spec);
      REQUIRE(judge_within_budgets(problem, parse_spec(spec, "test")).has_value());
    }
  }
}

/// Of a chain a placement puts the forward and the backward of each stage on a device.
Problem random_chain_problem(std::uint64_t seed) {
  Random random(seed);
  const std::uint32_t devices = random.between(1, 3);
  const Platform platform = gpus(
      {.count = devices, .to_host = BytesPerSecond{8}, .to_peers = BytesPerSecond{16}, .peer_latency = Seconds{0.25}});
  const ProblemOptions options{.micro_batches = random.chance(0.6) ? 1 : random.between(2, 3),
                               .optimizer = random.chance(0.5) ? Optimizer::none : Optimizer::adam,
                               .gradients = random.chance(0.5) ? Gradients::fresh : Gradients::existing};
  return problem_of(random_small_chain(seed, random.between(1, 6)), platform, options);
}

TEST_CASE("placements of chains, with memory strategies in their parts, within budgets", "[placement][eleventh-5]") {
  const std::vector<std::string> all = placements();
  for (const std::uint64_t seed : fewer_cases(1, 60)) {
    const Problem problem = random_chain_problem(seed);
    for (std::size_t k = 0; k < all.size(); ++k) {
      const std::string spec = all[k] + memory_savers[(seed / 11 + k) % std::size(memory_savers)];
      INFO(spec);
      REQUIRE(judge_within_budgets(problem, parse_spec(spec, "test")).has_value());
    }
  }
}

TEST_CASE("placements of a real graph, with results in place, updates and codecs", "[placement][eleventh-8]") {
  const Graph graph = std::get<Graph>(load_trace("resnet18_ops_b8_cpu").model);
  const Problem problem = problem_of(graph, load_platform("a100_sxm_8"), {.optimizer = Optimizer::adam});
  for (const std::string& placement : placements()) {
    for (const char* saver : {"", "|quantize", "|greedy_recompute"}) {
      const std::vector<Pass> passes = parse_spec(placement + saver, "test");
      INFO(placement << saver);
      const Plan made = std::get<Plan>(plan(problem, passes, std::nullopt));
      judge_plan(problem, made, std::nullopt);
    }
  }
}

}  // namespace
}  // namespace plimsoll
