// Alpa's search against every cut there is, on small rows of layers.

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>

#include "strategies/pipelining/planners/alpa.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

/// All ways to go on from a layer with so many devices left, the stages so far being `taken`.
double best_iteration(const AlpaProblem& p, std::uint32_t layer, std::uint32_t devices,
                      std::vector<std::uint32_t>& taken) {
  if (layer == p.layers) {
    if (devices != 0) return std::numeric_limits<double>::infinity();
    double sum = 0, longest = 0;
    for (std::size_t k = 0; k < taken.size(); ++k) {
      const AlpaProblem::Stage& stage = p.stages[taken[k]];
      if (taken.size() - 1 - k > stage.most_behind) return std::numeric_limits<double>::infinity();
      sum += stage.seconds;
      longest = std::max(longest, stage.seconds);
    }
    return sum + (p.micro_batches - 1) * longest;
  }
  double best = std::numeric_limits<double>::infinity();
  for (std::uint32_t k = 0; k < p.stages.size(); ++k) {
    if (p.stages[k].first != layer || p.stages[k].devices > devices) continue;
    taken.push_back(k);
    best = std::min(best, best_iteration(p, p.stages[k].last, devices - p.stages[k].devices, taken));
    taken.pop_back();
  }
  return best;
}

AlpaProblem random_row(Random& random, std::uint32_t layers, std::uint32_t devices, bool limited) {
  AlpaProblem p{.layers = layers, .devices = devices, .micro_batches = random.between(1, 20), .stages = {}};
  for (std::uint32_t i = 0; i < layers; ++i) {
    for (std::uint32_t j = i + 1; j <= layers; ++j) {
      for (std::uint32_t d = 1; d <= devices; d *= 2) {
        if (random.chance(0.1)) continue;
        AlpaProblem::Stage stage{.first = i, .last = j, .devices = d};
        stage.seconds = (j - i) * (1 + random.unit()) / d;
        if (limited) stage.most_behind = random.below(layers);
        p.stages.push_back(stage);
      }
    }
  }
  return p;
}

TEST_CASE("alpa finds the shortest iteration of all cuts of small rows", "[planners][alpa]") {
  for (const RandomCase seed : random_cases(1, 200)) {
    Random random(seed);
    const AlpaProblem problem = random_row(random, random.between(1, 6), random.between(1, 6), random.chance(0.5));
    std::vector<std::uint32_t> taken;
    const double best = best_iteration(problem, 0, problem.devices, taken);
    const std::optional<AlpaPlan> plan = plan_alpa(problem);
    REQUIRE(plan.has_value() == (best < std::numeric_limits<double>::infinity()));
    if (!plan) continue;
    CHECK(plan->seconds == Approx(best).epsilon(1e-12));
    std::uint32_t layer = 0, devices = 0;
    for (std::size_t k = 0; k < plan->stages.size(); ++k) {
      const AlpaProblem::Stage& stage = problem.stages[plan->stages[k]];
      CHECK(stage.first == layer);
      CHECK(plan->stages.size() - 1 - k <= stage.most_behind);
      layer = stage.last;
      devices += stage.devices;
    }
    CHECK(layer == problem.layers);
    CHECK(devices == problem.devices);
  }
}

TEST_CASE("alpa tries few bounds of many", "[planners][alpa]") {
  Random random(7);
  AlpaProblem problem = random_row(random, 16, 64, true);
  problem.micro_batches = 64;
  const std::optional<AlpaPlan> plan = plan_alpa(problem);
  REQUIRE(plan);
  CHECK(problem.stages.size() > 800);
  CHECK(plan->bounds < 200);
}

}  // namespace
}  // namespace plimsoll
