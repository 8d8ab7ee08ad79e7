// MadPipe against every partition and every period that can matter, on small chains: periods are sums of neighbouring
// loads, or of some device's; groups are packed anew for each.

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <numeric>

#include "strategies/pipelining/planners/madpipe.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

constexpr double no_period = std::numeric_limits<double>::infinity();

struct CutChain {
  std::vector<std::uint32_t> ends;  ///< of stages, ascending; the last one is the number of layers
  std::vector<bool> special;
};

struct Load {
  double seconds = 0;
  std::size_t stage = 0;  ///< or the number of stages, of a link
};

double sum_of(const MadpipeProblem& p, std::uint32_t first, std::uint32_t last, double MadpipeProblem::Layer::*what) {
  double sum = 0;
  for (std::uint32_t l = first; l < last; ++l) sum += p.layers[l].*what;
  return sum;
}

/// Stages and links from the last one back.
std::vector<Load> loads_of(const MadpipeProblem& p, const CutChain& cut) {
  std::vector<Load> loads;
  for (std::size_t s = cut.ends.size(); s-- > 0;) {
    const std::uint32_t first = s == 0 ? 0 : cut.ends[s - 1];
    loads.push_back({sum_of(p, first, cut.ends[s], &MadpipeProblem::Layer::seconds), s});
    if (s > 0) loads.push_back({2 * p.layers[first - 1].output_bytes / p.bytes_per_second, cut.ends.size()});
  }
  return loads;
}

/// Whether a cut keeps within memory at a period.
bool holds(const MadpipeProblem& p, const CutChain& cut, double period) {
  std::uint32_t group = 1;
  double load = 0, special_load = 0, special_bytes = 0;
  for (const Load& next : loads_of(p, cut)) {
    if (next.seconds > period) return false;
    if (load + next.seconds > period) ++group, load = 0;
    load += next.seconds;
    if (next.stage == cut.ends.size()) continue;
    const std::uint32_t first = next.stage == 0 ? 0 : cut.ends[next.stage - 1], last = cut.ends[next.stage];
    double bytes = sum_of(p, first, last, &MadpipeProblem::Layer::fixed_bytes) +
                   group * sum_of(p, first, last, &MadpipeProblem::Layer::kept_bytes);
    if (first > 0) bytes += 2 * p.layers[first - 1].output_bytes;
    if (last < p.layers.size()) bytes += 2 * p.layers[last - 1].output_bytes;
    if (cut.special[next.stage]) {
      special_load += next.seconds;
      special_bytes += bytes;
      bytes = special_bytes;
    }
    if (special_load > period || (p.memory_bytes && bytes > *p.memory_bytes)) return false;
  }
  return true;
}

double best_period(const MadpipeProblem& p) {
  double best = no_period;
  const auto n = static_cast<std::uint32_t>(p.layers.size());
  for (std::uint32_t mask = 0; mask < 1U << (n - 1); ++mask) {
    CutChain cut;
    for (std::uint32_t l = 1; l <= n; ++l) {
      if (l == n || (mask >> (l - 1) & 1U) != 0) cut.ends.push_back(l);
    }
    const std::size_t stages = cut.ends.size();
    for (std::uint32_t chosen = 0; chosen < 1U << stages; ++chosen) {
      if (chosen != 0 && (!p.special || (chosen & (chosen >> 1)) != 0)) continue;  // neighbours would be one stage
      cut.special.clear();
      for (std::size_t s = 0; s < stages; ++s) cut.special.push_back((chosen >> s & 1U) != 0);
      const auto normal = static_cast<std::size_t>(std::ranges::count(cut.special, false));
      if (normal > p.devices - (p.special ? 1U : 0U)) continue;
      std::vector<double> periods;
      const std::vector<Load> loads = loads_of(p, cut);
      double of_special = 0;
      for (std::size_t a = 0; a < loads.size(); ++a) {
        double sum = 0;
        for (std::size_t b = a; b < loads.size(); ++b) periods.push_back(sum += loads[b].seconds);
        if (loads[a].stage < stages && cut.special[loads[a].stage]) of_special += loads[a].seconds;
      }
      periods.push_back(of_special);
      for (const double period : periods) {
        if (period < best && holds(p, cut, period)) best = period;
      }
    }
  }
  return best;
}

/// Whole numbers, so that sums are the same in any order.
MadpipeProblem random_chain(Random& random, bool special) {
  MadpipeProblem p{.layers = {}, .devices = random.between(1, 4), .bytes_per_second = 2, .special = special};
  const std::uint32_t count = random.between(1, special ? 6 : 8);
  for (std::uint32_t l = 0; l < count; ++l) {
    p.layers.push_back(
        {1.0 * random.between(1, 12), 1.0 * random.below(10), 1.0 * random.below(10), 1.0 * random.below(5)});
  }
  if (random.chance(0.8)) p.memory_bytes = random.between(10, 120);
  return p;
}

void compare_periods(const MadpipeProblem& problem) {
  const double best = best_period(problem);
  const std::optional<MadpipePlan> plan = plan_madpipe(problem);
  REQUIRE(plan.has_value() == (best < no_period));
  if (!plan) return;
  CHECK(plan->exact);
  CHECK(plan->seconds == best);
  CutChain cut;
  for (const MadpipePlan::Stage& stage : plan->stages) {
    CHECK(stage.first == (cut.ends.empty() ? 0 : cut.ends.back()));
    cut.ends.push_back(stage.last);
    cut.special.push_back(stage.special);
    if (problem.memory_bytes) CHECK(stage.bytes <= *problem.memory_bytes);
  }
  CHECK(holds(problem, cut, plan->seconds));
}

TEST_CASE("madpipe finds the shortest period of all contiguous cuts of small chains", "[planners][madpipe]") {
  for (const RandomCase seed : random_cases(1, 300)) {
    Random random(seed);
    compare_periods(random_chain(random, false));
  }
}

TEST_CASE("madpipe finds the shortest period where one device may run several stages", "[planners][madpipe]") {
  for (const RandomCase seed : random_cases(1, 150)) {
    Random random(seed);
    compare_periods(random_chain(random, true));
  }
}

// Three layers of 4, 6 and 4 s on two devices: a stage of 10 s at best, but 8 s where the special device has both ends.
TEST_CASE("madpipe gives the special device stages that do not follow each other", "[planners][madpipe]") {
  MadpipeProblem problem{.layers = {{4, 0, 0, 0}, {6, 0, 0, 0}, {4, 0, 0, 0}}, .devices = 2, .bytes_per_second = 1};
  CHECK(plan_madpipe(problem)->seconds == 10);
  problem.special = true;
  const std::optional<MadpipePlan> plan = plan_madpipe(problem);
  REQUIRE(plan);
  CHECK(plan->seconds == 8);
  REQUIRE(plan->stages.size() == 3);
  CHECK(plan->stages[0].special);
  CHECK(!plan->stages[1].special);
  CHECK(plan->stages[2].special);
}

}  // namespace
}  // namespace plimsoll
