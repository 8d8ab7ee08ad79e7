// The smallest cut against all cuts, and what it saves against all sets of values.

#include <catch2/catch.hpp>

#include "sim/bound/max_flow.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "strategies/rematerialization/saving/min_cut.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

TEST_CASE("the smallest cut is as small as the smallest of all cuts", "[min_cut][property]") {
  for (const RandomCase seed : random_cases(0, 1999)) {
    Random random(seed);
    const std::size_t nodes = 2 + random.below(6);
    struct Edge {
      std::size_t from, to;
      double capacity;
    };
    std::vector<Edge> edges;
    FlowGraph graph(nodes);
    for (std::uint32_t e = 0; e < 3 * nodes; ++e) {
      const Edge edge{random.below(static_cast<std::uint32_t>(nodes)), random.below(static_cast<std::uint32_t>(nodes)),
                      static_cast<double>(random.below(10))};
      edges.push_back(edge);
      graph.edge(edge.from, edge.to, edge.capacity);
    }
    const auto cut = [&](const auto& on_source_side) {
      double capacity = 0;
      for (const Edge& edge : edges) {
        if (on_source_side(edge.from) && !on_source_side(edge.to)) capacity += edge.capacity;
      }
      return capacity;
    };
    double least = 1e9;
    for (std::size_t set = 0; set < (std::size_t{1} << nodes); ++set) {
      if ((set & 1U) == 0 || (set & 2U) != 0) continue;
      least = std::min(least, cut([set](std::size_t n) { return ((set >> n) & 1U) != 0; }));
    }
    const auto [flow, side] = graph.cut(0, 1);
    CAPTURE(seed);
    REQUIRE(side[0]);
    REQUIRE(!side[1]);
    REQUIRE(cut([&](std::size_t n) { return bool{graph.cut(0, 1).source_side[n]}; }) == least);
    REQUIRE(flow == least);
  }
}

/// Whether the backward's reads can be made from the saved values without running a banned op.
bool enough(const OpModel& model, const Banned& banned, std::uint64_t saved) {
  std::vector<bool> there(model.values.size(), false);
  for (std::uint32_t v = 0; v < model.values.size(); ++v) there[v] = ((saved >> v) & 1U) != 0;
  for (std::size_t o = 0; o < model.ops.size(); ++o) {
    const auto is_there = [&](std::uint32_t v) { return bool{there[v]}; };
    if (!model.ops[o].forward) {
      for (const std::uint32_t v : model.ops[o].reads) {
        const std::optional<std::uint32_t> maker = model.values[v].maker;
        if ((!maker || model.ops[*maker].forward) && !there[v]) return false;
      }
    } else if (!banned[o] && std::ranges::all_of(model.ops[o].reads, is_there)) {
      for (const std::uint32_t v : model.ops[o].ways.front().makes) there[v] = true;
    }
  }
  return true;
}

TEST_CASE("min_cut saves the fewest bytes from which the backward's reads can be made", "[min_cut][property]") {
  for (const RandomCase seed : random_cases(0, 399)) {
    Random random(seed);
    const Problem problem = problem_of(random_graph(seed, 1 + seed % 7), gpus({}));
    const Partition partition = one_device(problem.graph, 1, 1);
    const OpModel model = op_model(PartTask{problem, partition, PartId{0}, 1});
    Banned banned = banned_anyway(model);
    for (auto&& each : banned) each = each || random.chance(0.3);
    const Evicted evicted = evicted_by_min_cut(model, banned, CutWeight::bytes);
    std::vector<std::uint32_t> forward_values;
    for (std::uint32_t v = 0; v < model.values.size(); ++v) {
      const std::optional<std::uint32_t> maker = model.values[v].maker;
      if (!maker || model.ops[*maker].forward) forward_values.push_back(v);
    }
    const auto bytes_of = [&](std::uint64_t saved) {
      Bytes bytes;
      for (const std::uint32_t v : forward_values) {
        if (((saved >> v) & 1U) != 0) bytes += model.storages[model.values[v].storage];
      }
      return bytes;
    };
    std::uint64_t chosen = 0;
    for (const std::uint32_t v : forward_values) chosen |= evicted[v] ? 0 : std::uint64_t{1} << v;
    CAPTURE(seed);
    REQUIRE(enough(model, banned, chosen));
    for (std::uint64_t set = 0; set < (std::uint64_t{1} << forward_values.size()); ++set) {
      std::uint64_t saved = 0;
      for (std::size_t k = 0; k < forward_values.size(); ++k) {
        if (((set >> k) & 1U) != 0) saved |= std::uint64_t{1} << forward_values[k];
      }
      if (enough(model, banned, saved)) REQUIRE(bytes_of(chosen) <= bytes_of(saved));
    }
  }
}

TEST_CASE("min_cut and knapsack never beat the exact optimum on small graphs", "[min_cut][property]") {
  for (const std::string spec : {"min_cut", "min_cut(ban=none,distance=off)", "knapsack", "knapsack(solver=ilp)"}) {
    const std::vector<Pass> passes = parse_spec(spec, "test");
    for (const RandomCase seed : random_cases(0, 59)) {
      const Problem problem = problem_of(random_graph(seed, 1 + seed % 4), gpus({}));
      for (const Bytes budget : front_budgets(problem, passes)) {
        CAPTURE(spec, seed, budget.count);
        const std::optional<Bytes> limit = budget;
        const PlanOutcome made = plan(problem, passes, limit);
        const PlanOutcome best = plan(problem, parse_spec("exact", "test"), limit);
        REQUIRE(std::holds_alternative<Plan>(made));
        REQUIRE(std::holds_alternative<Plan>(best));
        REQUIRE(std::get<Plan>(best).makespan.value <= std::get<Plan>(made).makespan.value * (1 + 1e-12));
      }
    }
  }
}

TEST_CASE("PyTorch's ops that are not recomputed", "[min_cut]") {
  for (const char* kind : {"mm", "addmm", "bmm", "convolution", "_scaled_dot_product_flash_attention"}) {
    CHECK(is_compute_intensive(kind));
  }
  for (const char* kind : {"gelu", "native_layer_norm", "add", "_softmax"}) CHECK(!is_compute_intensive(kind));
}

}  // namespace
}  // namespace plimsoll
