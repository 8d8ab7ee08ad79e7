// PipeDream's optimizer against every pipeline there is, on small graphs, with and without memory, on one and two
// levels of machines. The oracle walks sets of layers as bit masks and prices each stage anew.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "strategies/pipelining/planners/pipedream.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();

PipedreamProblem random_layers(Random& random, std::uint32_t nodes, bool chain) {
  PipedreamProblem problem;
  problem.dag.nodes = nodes;
  for (std::uint32_t n = 0; n < nodes; ++n) {
    problem.seconds.push_back(random.below(10));
    problem.parameter_bytes.push_back(random.below(31));
    problem.activation_bytes.push_back(random.below(31));
    problem.output_bytes.push_back(random.below(31));
    for (std::uint32_t to = n + 1; to < nodes; ++to) {
      if (chain ? to == n + 1 : random.chance(0.3)) problem.dag.edges.emplace_back(n, to);
    }
  }
  return problem;
}

/// The best pipeline of what lies between two masks, on all machines of a level, with `behind` devices behind each.
class EveryPipeline {
 public:
  explicit EveryPipeline(const PipedreamProblem& problem) : p_(problem) {
    for (std::uint32_t mask = 0; mask < 1U << p_.dag.nodes; ++mask) {
      if (std::ranges::all_of(p_.dag.edges,
                              [&](auto e) { return (mask >> e.second & 1U) <= (mask >> e.first & 1U); })) {
        closed_.push_back(mask);
      }
    }
  }

  double best() const { return of_level(p_.levels.size() - 1, 0, (1U << p_.dag.nodes) - 1, 0.0); }

 private:
  double sum(const std::vector<double>& values, std::uint32_t mask) const {
    double total = 0;
    for (std::uint32_t n = 0; n < p_.dag.nodes; ++n) total += (mask >> n & 1U) != 0 ? values[n] : 0;
    return total;
  }

  double output(std::uint32_t mask) const {
    std::uint32_t leaving = 0;
    for (const auto& [from, to] : p_.dag.edges) {
      if ((mask >> from & 1U) > (mask >> to & 1U)) leaving |= 1U << from;
    }
    return sum(p_.output_bytes, leaving);
  }

  /// A machine of the level below runs what lies between: a device, or a pipeline of its own.
  double of_machine(std::size_t level, std::uint32_t from, std::uint32_t to, double behind) const {
    if (level > 0) return of_level(level - 1, from, to, behind);
    const double in_flight = 1 + std::ceil(behind - 1e-9);
    const double bytes = sum(p_.activation_bytes, to & ~from) + sum(p_.parameter_bytes, to & ~from);
    if (p_.memory_bytes && in_flight * bytes > *p_.memory_bytes) return never;
    return sum(p_.seconds, to & ~from);
  }

  double of_level(std::size_t level, std::uint32_t from, std::uint32_t to, double behind) const {
    const PipedreamProblem::Level& machine = p_.levels[level];
    double devices = 1;
    for (std::size_t l = 0; l < level; ++l) devices *= p_.levels[l].machines;
    const double below = level == 0 ? 1 : p_.levels[level - 1].machines;
    // Stages are walked from the last one: `left` machines for what is up to `end`.
    const std::function<double(std::uint32_t, std::uint32_t)> walk = [&](std::uint32_t end, std::uint32_t left) {
      const double after = (machine.machines - left) * devices;
      double least = never;
      if (!p_.straight || left == 1) {
        const double exchange =
            4 * (left - 1.0) * sum(p_.parameter_bytes, end & ~from) / (machine.bytes_per_second * left * below);
        least = (of_machine(level, from, end, (behind + after) / left) + exchange) / left;
      }
      for (std::uint32_t r = 1; r < left && (r == 1 || !p_.straight); ++r) {
        for (const std::uint32_t cut : closed_) {
          if (cut == from || cut == end || (from & ~cut) != 0 || (cut & ~end) != 0) continue;
          const double exchange = 4 * (r - 1.0) * sum(p_.parameter_bytes, end & ~cut) / (machine.bytes_per_second * r);
          double time = (of_machine(level, cut, end, (behind + after) / r) + exchange) / r;
          if (p_.compression) {
            const double rate = machine.bytes_per_second * r * *p_.compression;
            time = std::max(time, 2 * output(cut) / rate);
            if (end + 1 != 1U << p_.dag.nodes) time = std::max(time, 2 * output(end) / rate);
          }
          if (time < least) least = std::min(least, std::max(time, walk(cut, left - r)));
        }
      }
      return least;
    };
    return walk(to, machine.machines);
  }

  const PipedreamProblem& p_;
  std::vector<std::uint32_t> closed_;
};

void compare(const PipedreamProblem& problem) {
  const PipedreamOutcome outcome = plan_pipedream(problem);
  const double best = EveryPipeline(problem).best();
  if (best == never) {
    CHECK(!outcome.plan);
    CHECK(outcome.reason.starts_with("no stages"));
    return;
  }
  REQUIRE(outcome.plan);
  CHECK(outcome.plan->seconds == Approx(best).epsilon(1e-12));
  std::vector<std::uint32_t> seen;
  std::uint32_t devices = 0, all = 1;
  for (const PipedreamProblem::Level& level : problem.levels) all *= level.machines;
  for (const PipedreamStage& stage : outcome.plan->stages) {
    seen.insert(seen.end(), stage.nodes.begin(), stage.nodes.end());
    devices += stage.replicas;
    if (problem.memory_bytes) CHECK(stage.bytes <= *problem.memory_bytes);
    for (const auto& [from, to] : problem.dag.edges) {  // nothing is read that a later stage makes
      if (std::ranges::find(stage.nodes, to) == stage.nodes.end()) continue;
      CHECK(std::ranges::find(seen, from) != seen.end());
    }
  }
  CHECK(devices == all);
  std::ranges::sort(seen);
  std::vector<std::uint32_t> every(problem.dag.nodes);
  std::iota(every.begin(), every.end(), 0U);
  CHECK(seen == every);
}

TEST_CASE("pipedream finds the best of all pipelines of small graphs on one level", "[planners][pipedream]") {
  for (const RandomCase seed : random_cases(1, 120)) {
    Random random(seed);
    PipedreamProblem problem = random_layers(random, 1 + random.below(7), random.chance(0.3));
    problem.levels = {{random.between(1, 4), 1.0 * random.between(1, 40)}};
    if (random.chance(0.5)) problem.memory_bytes = random.below(400);
    problem.straight = random.chance(0.2);
    if (random.chance(0.25)) problem.compression = random.between(1, 3);
    compare(problem);
  }
}

TEST_CASE("pipedream finds the best pipelines of pipelines of small chains on two levels", "[planners][pipedream]") {
  for (const RandomCase seed : random_cases(1, 60)) {
    Random random(seed);
    PipedreamProblem problem = random_layers(random, 2 + random.below(4), random.chance(0.6));
    problem.levels = {{random.between(1, 3), 50.0}, {random.between(1, 3), 1.0 * random.between(1, 20)}};
    if (random.chance(0.5)) problem.memory_bytes = random.below(600);
    compare(problem);
  }
}

// Two layers of 4 s, 10 B of activations each, on two devices: two stages of 4 s keep 2 and 1 mini-batches.
TEST_CASE("pipedream counts what is in flight behind a stage", "[planners][pipedream]") {
  PipedreamProblem problem{.dag = {.nodes = 2, .edges = {{0, 1}}},
                           .seconds = {4, 4},
                           .parameter_bytes = {100, 100},
                           .activation_bytes = {10, 10},
                           .output_bytes = {10, 10},
                           .levels = {{2, 10.0}}};
  problem.memory_bytes = 220;
  const PipedreamOutcome fits = plan_pipedream(problem);
  REQUIRE(fits.plan);
  CHECK(fits.plan->seconds == 4);
  CHECK(fits.plan->stages[0].in_flight == 2);
  CHECK(fits.plan->stages[0].bytes == 220);
  CHECK(fits.plan->stages[1].in_flight == 1);
  problem.memory_bytes = 219;
  CHECK(!plan_pipedream(problem).plan);
  problem.published = true;  // counts one mini-batch for the first stage, none for the last
  problem.memory_bytes = 110;
  CHECK(plan_pipedream(problem).plan->seconds == 4);
  problem.memory_bytes = 109;  // both layers on both devices: counted as nothing
  const PipedreamOutcome replicated = plan_pipedream(problem);
  REQUIRE(replicated.plan);
  CHECK(replicated.plan->stages.size() == 1);
  CHECK(replicated.plan->seconds == Approx((8 + 4.0 * 200 / 20) / 2));
}

}  // namespace
}  // namespace plimsoll
