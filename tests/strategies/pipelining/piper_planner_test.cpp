// Piper's stages against every pipeline there is, on small graphs: all cuts, all numbers of replicas and devices, all
// ways to run each layer.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "strategies/pipelining/planners/piper.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

constexpr double no_stages = std::numeric_limits<double>::infinity();

struct PricedStage {
  double seconds = 0, bytes = 0;
};

/// A stage with these options of its nodes, by the definition.
PricedStage priced(const PiperProblem& p, const std::vector<std::uint32_t>& nodes,
                   const std::vector<std::uint32_t>& options, std::uint32_t replicas, std::uint32_t in_flight) {
  const auto in = [&](std::uint32_t n) { return std::ranges::find(nodes, n) != nodes.end(); };
  PricedStage made;
  double sent = 0, parameters = 0;
  for (std::size_t k = 0; k < nodes.size(); ++k) {
    const PiperProblem::Option& way = p.nodes[nodes[k]][options[k]];
    made.seconds += way.seconds;
    made.bytes += way.kept_bytes * in_flight + way.fixed_bytes;
    parameters += way.parameter_bytes;
    for (const auto& [edge, bytes] : way.sent) {
      if (in(p.dag.edges[edge].first) != in(p.dag.edges[edge].second)) sent += bytes;
    }
  }
  for (std::size_t e = 0; e < p.dag.edges.size(); ++e) {
    if (in(p.dag.edges[e].first) != in(p.dag.edges[e].second)) sent += p.edge_bytes[e];
  }
  made.seconds = (made.seconds + 2 * sent / p.bytes_per_second +
                  4 * (replicas - 1.0) * parameters / p.micro_batches / p.bytes_per_second) /
                 replicas;
  return made;
}

double best_ways(const PiperProblem& p, const std::vector<std::uint32_t>& nodes, std::uint32_t degree,
                 std::uint32_t replicas, std::uint32_t in_flight) {
  double best = no_stages;
  std::vector<std::uint32_t> options(nodes.size(), 0);
  while (true) {
    bool allowed = true;
    for (std::size_t k = 0; k < nodes.size(); ++k) allowed = allowed && p.nodes[nodes[k]][options[k]].devices == degree;
    if (allowed) {
      const PricedStage stage = priced(p, nodes, options, replicas, in_flight);
      if (!p.memory_bytes || stage.bytes <= *p.memory_bytes) best = std::min(best, stage.seconds);
    }
    std::size_t k = 0;
    while (k < nodes.size() && ++options[k] == p.nodes[nodes[k]].size()) options[k++] = 0;
    if (k == nodes.size()) return best;
  }
}

/// From the last stage to the first: `mask` is what is behind, on so many devices, with so many replicas.
double best_stages(const PiperProblem& p, std::uint32_t mask, std::uint32_t devices, std::uint32_t replicas) {
  const std::uint32_t all = (1U << p.nodes.size()) - 1;
  if (mask == all) return 0;
  double best = no_stages;
  for (std::uint32_t wider = mask + 1; wider <= all; ++wider) {
    if ((wider & mask) != mask) continue;
    const auto closed = [&](const auto& e) { return (wider >> e.first & 1U) <= (wider >> e.second & 1U); };
    if (!std::ranges::all_of(p.dag.edges, closed)) continue;
    std::vector<std::uint32_t> nodes;
    for (std::uint32_t n = 0; n < p.nodes.size(); ++n) {
      if (((wider & ~mask) >> n & 1U) != 0) nodes.push_back(n);
    }
    for (std::uint32_t d = 1; d <= (p.replicas ? p.micro_batches : 1); ++d) {
      if (p.micro_batches % d != 0) continue;
      for (const std::uint32_t degree : {1U, 2U}) {
        if (devices + d * degree > p.devices) continue;
        const std::uint32_t in_flight = (replicas + d + d - 1) / d;
        const double here = best_ways(p, nodes, degree, d, in_flight);
        if (here < best) {
          best = std::min(best, std::max(here, best_stages(p, wider, devices + d * degree, replicas + d)));
        }
      }
    }
  }
  return best;
}

PiperProblem random_model(Random& random) {
  PiperProblem p;
  const std::uint32_t count = random.between(1, 5);
  for (std::uint32_t n = 0; n < count; ++n) {
    for (std::uint32_t to = n + 1; to < count; ++to) {
      if (to > n + 1 && !random.chance(0.3)) continue;
      p.dag.edges.emplace_back(n, to);
      p.edge_bytes.push_back(random.below(20));
    }
  }
  p.dag.nodes = count;
  for (std::uint32_t n = 0; n < count; ++n) {
    std::vector<PiperProblem::Option>& ways = p.nodes.emplace_back();
    for (const std::uint32_t degree : {1U, 2U}) {
      if (degree == 2 && !random.chance(0.7)) continue;
      PiperProblem::Option plain{.devices = degree, .seconds = 1.0 * random.between(1, 20) / degree};
      plain.parameter_bytes = plain.fixed_bytes = random.below(10) / degree;
      plain.kept_bytes = random.below(20);
      for (std::uint32_t e = 0; e < p.dag.edges.size(); ++e) {
        const bool mine = p.dag.edges[e].first == n || p.dag.edges[e].second == n;
        if (mine && degree == 2) plain.sent.emplace_back(e, random.below(5));
      }
      PiperProblem::Option again = plain;
      again.seconds *= 1.3;
      again.kept_bytes = random.below(5);
      again.fixed_bytes += random.below(8);
      ways.push_back(plain);
      ways.push_back(again);
    }
  }
  p.devices = random.between(1, 6);
  p.micro_batches = random.between(1, 12);
  p.bytes_per_second = random.between(1, 30);
  p.replicas = random.chance(0.8);
  return p;
}

void check_plan(const PiperProblem& p, const PiperPlan& plan) {
  std::uint32_t devices = 0, behind = 0, seen = 0;
  for (auto stage = plan.stages.rbegin(); stage != plan.stages.rend(); ++stage) {
    behind += stage->replicas;
    devices += stage->replicas * stage->devices;
    CHECK(p.micro_batches % stage->replicas == 0);
    CHECK(stage->in_flight == (behind + stage->replicas - 1) / stage->replicas);
    const PricedStage cost = priced(p, stage->nodes, stage->options, stage->replicas, stage->in_flight);
    CHECK(cost.seconds == Approx(stage->seconds).epsilon(1e-12));
    CHECK(cost.seconds <= plan.seconds * (1 + 1e-12));
    if (p.memory_bytes) CHECK(cost.bytes <= *p.memory_bytes);
    for (const std::uint32_t n : stage->nodes) seen |= 1U << n;
    for (const auto& [from, to] : p.dag.edges) CHECK((seen >> from & 1U) <= (seen >> to & 1U));
  }
  CHECK(devices <= p.devices);
  CHECK(seen == (1U << p.nodes.size()) - 1);
}

TEST_CASE("piper finds the shortest longest stage of small models that fit anyhow", "[planners][piper]") {
  for (const RandomCase seed : random_cases(1, 80)) {
    Random random(seed);
    const PiperProblem problem = random_model(random);
    const PiperOutcome outcome = plan_piper(problem);
    const double best = best_stages(problem, 0, 0, 0);
    REQUIRE(outcome.plan.has_value() == (best < no_stages));
    if (!outcome.plan) continue;
    CHECK(outcome.plan->seconds == Approx(best).epsilon(1e-10));
    check_plan(problem, *outcome.plan);
  }
}

TEST_CASE("piper within memory is legal, never better than the best, and mostly the best", "[planners][piper]") {
  std::size_t optimal = 0, planned = 0;
  for (const RandomCase seed : random_cases(1, 150)) {
    Random random(seed);
    PiperProblem problem = random_model(random);
    problem.memory_bytes = random.between(10, 120);
    const PiperOutcome outcome = plan_piper(problem);
    const double best = best_stages(problem, 0, 0, 0);
    REQUIRE(outcome.plan.has_value() == (best < no_stages));
    if (!outcome.plan) continue;
    check_plan(problem, *outcome.plan);
    CHECK(outcome.plan->seconds >= best * (1 - 1e-10));
    CHECK(outcome.plan->seconds <= best * 1.3);
    ++planned;
    if (outcome.plan->seconds <= best * (1 + 1e-10)) ++optimal;
  }
  if (all_cases()) CHECK(optimal * 100 >= planned * 95);
}

}  // namespace
}  // namespace plimsoll
