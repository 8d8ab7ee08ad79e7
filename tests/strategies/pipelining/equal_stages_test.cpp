// Equal stages against all of them by the definition, on small random rows of layers.

#include "strategies/pipelining/planners/piper.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>

#include "tests/generate/random.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

constexpr double no_stages = std::numeric_limits<double>::infinity();
constexpr std::uint32_t plain = 0, recompute = 1;

/// A row of layers, of which some at its ends are not counted, with an edge from the first one to each further one.
EqualStagesProblem random_row(Random& random) {
  EqualStagesProblem made;
  PiperProblem& p = made.model;
  const std::uint32_t first = random.below(3), counted = random.between(1, 5), last = random.below(3);
  p.dag.nodes = first + counted + last;
  for (std::uint32_t n = 0; n < p.dag.nodes; ++n) {
    made.counted.push_back(n >= first && n < first + counted);
    if (n > 0) p.dag.edges.emplace_back(n - 1, n);
    if (n > 1 && random.chance(0.3)) p.dag.edges.emplace_back(0, n);
  }
  for (std::size_t e = 0; e < p.dag.edges.size(); ++e) p.edge_bytes.push_back(random.below(20));
  for (std::uint32_t n = 0; n < p.dag.nodes; ++n) {
    std::vector<PiperProblem::Option>& options = p.nodes.emplace_back();
    made.ways.emplace_back();
    for (const std::uint32_t devices : {1U, 2U}) {
      if (devices == 2 && random.chance(0.05)) continue;
      PiperProblem::Option option{.devices = devices, .seconds = 1.0 * random.between(1, 20) / devices};
      option.parameter_bytes = option.fixed_bytes = random.below(10) / devices;
      option.kept_bytes = random.below(20);
      for (std::uint32_t e = 0; e < p.dag.edges.size(); ++e) {
        const bool mine = p.dag.edges[e].first == n || p.dag.edges[e].second == n;
        if (mine && devices == 2) option.sent.emplace_back(e, random.below(5));
      }
      options.push_back(option);
      made.ways[n].push_back(plain);
      option.seconds *= 1.3;
      option.kept_bytes = random.below(5);
      options.push_back(option);
      made.ways[n].push_back(recompute);
    }
  }
  p.devices = random.between(1, 12);
  p.micro_batches = random.between(1, 12);
  p.bytes_per_second = random.between(1, 30);
  p.replicas = random.chance(0.8);
  if (random.chance(0.7)) p.memory_bytes = random.between(10, 200);
  return made;
}

struct Try {
  std::vector<std::uint32_t> ends;  ///< behind the last layer of each stage
  std::uint32_t devices = 1, replicas = 1, way = plain;
};

/// The longest stage of a try, or none where it does not fit or a layer cannot be run so.
double longest(const EqualStagesProblem& problem, const Try& tried) {
  const PiperProblem& p = problem.model;
  double slowest = 0;
  for (std::size_t s = 0, begin = 0; s < tried.ends.size(); begin = tried.ends[s++]) {
    const auto inside = [&](std::uint32_t n) { return n >= begin && n < tried.ends[s]; };
    const auto is_cut = [&](std::uint32_t e) { return inside(p.dag.edges[e].first) != inside(p.dag.edges[e].second); };
    double seconds = 0, moved = 0, bytes = 0;
    for (std::uint32_t e = 0; e < p.dag.edges.size(); ++e) moved += is_cut(e) ? 2 * p.edge_bytes[e] : 0;
    for (auto n = static_cast<std::uint32_t>(begin); n < tried.ends[s]; ++n) {
      const PiperProblem::Option* option = nullptr;
      for (std::size_t o = 0; o < p.nodes[n].size(); ++o) {
        if (p.nodes[n][o].devices == tried.devices && problem.ways[n][o] == tried.way) option = &p.nodes[n][o];
      }
      if (option == nullptr) return no_stages;
      seconds += option->seconds;
      for (const auto& [edge, sent] : option->sent) moved += is_cut(edge) ? 2 * sent : 0;
      moved += 4 * (tried.replicas - 1.0) * option->parameter_bytes / p.micro_batches;
      bytes += option->kept_bytes * static_cast<double>(tried.ends.size() - s) + option->fixed_bytes;
    }
    if (p.memory_bytes && bytes > *p.memory_bytes) return no_stages;
    slowest = std::max(slowest, (seconds + moved / p.bytes_per_second) / tried.replicas);
  }
  return slowest;
}

/// By the definition: every way to cut the counted layers into stages of which any two differ by one layer at most and
/// none is larger than a later one; the others with their neighbours, or on their own.
template <class Visit>
void each_try(const EqualStagesProblem& problem, const Visit& visit) {
  const PiperProblem& p = problem.model;
  const auto begin = static_cast<std::uint32_t>(std::ranges::find(problem.counted, true) - problem.counted.begin());
  const auto counted = static_cast<std::uint32_t>(std::ranges::count(problem.counted, true));
  const std::uint32_t end = begin + counted;
  for (std::uint32_t cuts = 0; cuts < 1U << (counted - 1); ++cuts) {
    std::vector<std::uint32_t> ends, sizes;
    for (std::uint32_t k = 1, since = 0; k <= counted; ++k) {
      if (k < counted && (cuts >> (k - 1) & 1U) == 0) continue;
      ends.push_back(begin + k);
      sizes.push_back(k - since);
      since = k;
    }
    if (!std::ranges::is_sorted(sizes) || sizes.back() > sizes.front() + 1) continue;
    for (const bool apart : {false, true}) {
      std::vector<std::uint32_t> all = ends;
      if (apart && begin > 0) all.insert(all.begin(), begin);
      if (apart && end < p.dag.nodes) all.push_back(p.dag.nodes);
      if (!apart) all.back() = p.dag.nodes;
      for (std::uint32_t d = 1; d <= (p.replicas ? p.micro_batches : 1); ++d) {
        if (p.micro_batches % d != 0) continue;
        for (const std::uint32_t devices : {1U, 2U}) {
          if (all.size() * d * devices > p.devices) continue;
          for (const std::uint32_t way : {plain, recompute}) visit(Try{all, devices, d, way});
        }
      }
    }
  }
}

TEST_CASE("equal stages are the best of all of them", "[planners][equal_stages]") {
  std::size_t planned = 0, apart = 0;
  for (const RandomCase seed : random_cases(1, 300)) {
    Random random(seed);
    const EqualStagesProblem problem = random_row(random);
    double best = no_stages;
    each_try(problem, [&](const Try& tried) { best = std::min(best, longest(problem, tried)); });
    REQUIRE(!between_counted(problem));
    const PiperOutcome outcome = plan_equal_stages(problem);
    REQUIRE(outcome.plan.has_value() == (best < no_stages));
    if (!outcome.plan) continue;
    CHECK(outcome.plan->seconds == Approx(best).epsilon(1e-12));
    Try made{{}, outcome.plan->stages.front().devices, outcome.plan->stages.front().replicas, plain};
    std::uint32_t behind = static_cast<std::uint32_t>(outcome.plan->stages.size()), next = 0;
    for (const PiperStage& stage : outcome.plan->stages) {
      CHECK(stage.in_flight == behind--);
      CHECK((stage.devices == made.devices && stage.replicas == made.replicas));
      for (std::size_t k = 0; k < stage.nodes.size(); ++k) {
        CHECK(stage.nodes[k] == next++);
        made.way = problem.ways[stage.nodes[k]][stage.options[k]];
      }
      made.ends.push_back(next);
    }
    CHECK(longest(problem, made) == Approx(best).epsilon(1e-12));
    ++planned;
    if (!problem.counted[outcome.plan->stages.front().nodes.back()]) ++apart;
  }
  if (all_cases()) CHECK((planned >= 150 && apart >= 10));
}

TEST_CASE("a layer between counted ones is found", "[planners][equal_stages]") {
  EqualStagesProblem problem;
  problem.model.dag = {.nodes = 4, .edges = {{0, 1}, {1, 2}, {2, 3}}};
  problem.counted = {false, true, false, true};
  CHECK(between_counted(problem) == 2U);
  problem.counted = {false, true, true, false};
  CHECK(!between_counted(problem));
}

}  // namespace
}  // namespace plimsoll
