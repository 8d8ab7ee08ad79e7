// SAPP's distribution of layers against every one there is, on small cases; objective and memory are written anew.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "strategies/pipelining/planners/sapp.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

constexpr double no_distribution = std::numeric_limits<double>::infinity();

/// Layers of one body by part and way: part = chunk x devices + device.
using Distribution = std::vector<std::vector<std::uint32_t>>;

double longest_of(const SappProblem& p, const Distribution& counts) {
  const SappProblem::Body& body = p.bodies.front();
  const std::uint32_t d = p.devices;
  const bool is_short = p.chunks > 1 && p.micro_batches == d;  // the last chunk's time is added to the others'
  double longest = 0, last = 0;
  for (std::uint32_t s = 0; s < d; ++s) {
    double bytes = (s == 0 ? p.head.fixed_bytes : 0) + (s + 1 == d ? p.tail.fixed_bytes : 0);
    std::vector<double> forward(p.chunks, 0), backward(p.chunks, 0);
    for (std::uint32_t v = 0; v < p.chunks; ++v) {
      // In flight: 1F1B's, or those of the interleaved order.
      double in_flight = d - s;
      if (p.chunks > 1) {
        const double lead = 1.0 * d - 2.0 * s - 1;
        in_flight = d + (v == 0 && lead > 0 ? lead : 0) + (v + 1 == p.chunks && lead < 0 ? lead : 0);
        if (v == 0 && v + 1 == p.chunks) in_flight = d;
      }
      in_flight = std::min(in_flight, 1.0 * p.micro_batches);
      for (std::size_t w = 0; w < body.ways.size(); ++w) {
        const double n = counts[v * d + s][w];
        forward[v] += n * body.forward_seconds;
        backward[v] += n * body.ways[w].backward_seconds;
        bytes += n * (body.fixed_bytes + in_flight * body.ways[w].kept_bytes);
      }
    }
    if (bytes > p.memory_bytes * (1 + 1e-9)) return no_distribution;
    if (is_short) {
      if (s == 0) backward.front() += p.head.backward_seconds;
      const double share = s * 2 < d && p.micro_batches < 2 * d ? 0 : std::abs(d - 1 - 2.0 * s) / p.micro_batches;
      const bool is_end = s + 1 == d;
      last = std::max(last, backward.back() + share * forward.back() +
                                (is_end ? p.tail.backward_seconds + share * p.tail.forward_seconds : 0));
      backward.pop_back();
      for (const double time : backward) longest = std::max(longest, time);
      continue;
    }
    const double ends = (s == 0 ? p.head.forward_seconds + p.head.backward_seconds : 0) +
                        (s + 1 == d ? p.tail.forward_seconds + p.tail.backward_seconds : 0);
    longest = std::max(longest, *std::ranges::max_element(forward) + *std::ranges::max_element(backward) + ends);
  }
  return is_short ? longest + std::max(longest, last) : longest;
}

/// When 1F1B ends: each device takes p - s - 1 forwards, then a forward and a backward by turns, as soon as its
/// neighbour has made what it reads.
double end_of(const SappProblem& p, const Distribution& counts) {
  const std::uint32_t d = p.devices, m = p.micro_batches;
  std::vector<double> f(d, 0), b(d, 0), now(d, 0);
  for (std::uint32_t s = 0; s < d; ++s) {
    const SappProblem::Body& body = p.bodies.front();
    for (std::size_t w = 0; w < body.ways.size(); ++w) {
      f[s] += counts[s][w] * body.forward_seconds;
      b[s] += counts[s][w] * body.ways[w].backward_seconds;
    }
  }
  f.front() += p.head.forward_seconds, b.front() += p.head.backward_seconds;
  f.back() += p.tail.forward_seconds, b.back() += p.tail.backward_seconds;
  std::vector<std::vector<double>> forward(d), backward(d);  // ends, by micro-batch
  for (bool any = true; any;) {
    any = false;
    for (std::uint32_t s = 0; s < d; ++s) {
      const std::size_t i = forward[s].size(), k = backward[s].size();
      const bool goes_forward = i < m && i < k + d - s;
      if (!goes_forward && k == m) continue;
      double ready = 0;
      if (goes_forward && s > 0) {
        if (forward[s - 1].size() <= i) continue;
        ready = forward[s - 1][i];
      } else if (!goes_forward && s + 1 < d) {
        if (backward[s + 1].size() <= k) continue;
        ready = backward[s + 1][k];
      }
      now[s] = std::max(now[s], ready) + (goes_forward ? f : b)[s];
      (goes_forward ? forward : backward)[s].push_back(now[s]);
      any = true;
    }
  }
  return *std::ranges::max_element(now);
}

/// The longest stage and, where that is least, the earliest end of an iteration with one part a device.
using SappBest = std::pair<double, double>;

SappBest best_distribution(const SappProblem& p, Distribution& counts, std::size_t cell, std::uint32_t left) {
  constexpr SappBest none{no_distribution, no_distribution};
  const std::size_t ways = p.bodies.front().ways.size(), parts = counts.size();
  if (cell == parts * ways) {
    if (left > 0) return none;
    for (std::size_t part = 1; part + 1 < parts; ++part) {
      if (std::ranges::count(counts[part], 0U) == static_cast<std::ptrdiff_t>(ways)) return none;
    }
    return {longest_of(p, counts), p.chunks == 1 ? end_of(p, counts) : 0};
  }
  SappBest best = none;
  for (std::uint32_t n = 0; n <= left; ++n) {
    counts[cell / ways][cell % ways] = n;
    const SappBest made = best_distribution(p, counts, cell + 1, left - n);
    const bool is_as_short = made.first <= best.first * (1 + 1e-9);  // the same sums may be rounded another way
    if (made.first < best.first * (1 - 1e-9) || (is_as_short && made.second < best.second)) best = made;
  }
  counts[cell / ways][cell % ways] = 0;
  return best;
}

SappProblem random_layers_of_one_kind(Random& random) {
  SappProblem p;
  p.devices = random.between(1, 3);
  p.chunks = random.between(1, p.devices == 3 ? 1 : 2);
  p.micro_batches = random.between(1, 6);
  SappProblem::Body& body = p.bodies.emplace_back();
  body.count = random.between(p.devices * p.chunks, 6);
  body.forward_seconds = random.between(1, 9);
  body.fixed_bytes = random.below(10);
  const double kept = random.between(1, 10);
  body.ways = {{2 * body.forward_seconds, kept}, {3 * body.forward_seconds, kept / 4}};
  p.head = {1.0 * random.below(4), 1.0 * random.below(8), 1.0 * random.below(20)};
  const double heavy = random.chance(0.4) ? 6 : 1;  // then stages before the last are not the longest
  p.tail = {heavy * random.below(9), heavy * random.below(9), 1.0 * random.below(20)};
  p.memory_bytes = random.between(20, 120);
  p.limits.seconds = 20;
  return p;
}

TEST_CASE("sapp finds the shortest longest stage of all distributions of few layers and, of those, ends first",
          "[planners][sapp]") {
  std::size_t compared = 0, first = 0;
  for (const RandomCase seed : fewer_cases(1, 150)) {
    Random random(seed);
    const SappProblem problem = random_layers_of_one_kind(random);
    Distribution counts(problem.devices * problem.chunks, std::vector<std::uint32_t>(problem.bodies[0].ways.size(), 0));
    const auto [best, soonest] = best_distribution(problem, counts, 0, problem.bodies[0].count);
    const SappOutcome outcome = plan_sapp(problem);
    REQUIRE(outcome.plan.has_value() == (best < no_distribution));
    if (!outcome.plan) continue;
    CHECK(outcome.plan->proved);
    CHECK(outcome.plan->seconds == Approx(best).epsilon(1e-7));
    std::uint32_t placed = 0;
    for (std::size_t w = 0; w < problem.bodies[0].ways.size(); ++w) {
      for (std::uint32_t v = 0; v < problem.chunks; ++v) {
        for (std::uint32_t s = 0; s < problem.devices; ++s) {
          counts[v * problem.devices + s][w] = outcome.plan->layers[0][w][v][s];
          placed += outcome.plan->layers[0][w][v][s];
        }
      }
    }
    CHECK(placed == problem.bodies[0].count);
    CHECK(longest_of(problem, counts) == Approx(outcome.plan->seconds).epsilon(1e-7));
    if (problem.chunks > 1) continue;
    ++compared;
    first += end_of(problem, counts) <= soonest * (1 + 1e-9) ? 1 : 0;
  }
  // Layers move one by one, which may not find the best distribution.
  if (all_cases()) CHECK(compared >= cases_of(std::size_t{60}));
  if (all_cases()) CHECK(static_cast<double>(first) >= 0.97 * static_cast<double>(compared));
}

TEST_CASE("sapp proves less than what its authors' program finds for 192 layers", "[planners][sapp]") {
  // Llama 2 70B as `sim.json` has it, in ms and MB; published are 7644.6 and 4194, neither proved.
  SappProblem problem;
  problem.bodies = {{192, 180, 1583, {{360, 826}, {405, 614}, {405, 426}, {419.4, 310}, {540, 32}}}};
  problem.head = {30, 60, 11000};
  problem.tail = {90, 180, 2473};
  problem.devices = 16;
  problem.micro_batches = 32;
  problem.memory_bytes = 53000;
  const SappOutcome one = plan_sapp(problem);
  REQUIRE(one.plan);
  CHECK(one.plan->seconds == Approx(7540.2));
  CHECK(*std::ranges::max_element(one.plan->bytes) <= problem.memory_bytes);
  problem.micro_batches = 16;
  problem.chunks = 3;
  problem.memory_bytes = 60000;
  const SappOutcome three = plan_sapp(problem);
  REQUIRE(three.plan);
  CHECK(three.plan->seconds == Approx(4107.6));
  CHECK(*std::ranges::max_element(three.plan->bytes) <= problem.memory_bytes);
}

// Two bodies of two layers on two devices: the second body begins where the first one ends.
TEST_CASE("sapp keeps the order of unlike layers", "[planners][sapp]") {
  SappProblem problem;
  problem.devices = 2;
  problem.micro_batches = 4;
  problem.memory_bytes = 100;
  problem.bodies = {{2, 1, 0, {{2, 1}}}, {2, 3, 0, {{6, 1}}}};
  const SappOutcome outcome = plan_sapp(problem);
  REQUIRE(outcome.plan);
  CHECK(outcome.plan->seconds == Approx(15));  // 1 + 1 + 3 | 3 would be 15 | 9, and 1 + 1 | 3 + 3 is 6 | 18
  CHECK(outcome.plan->layers[0][0][0] == std::vector<std::uint32_t>{2, 0});
  CHECK(outcome.plan->layers[1][0][0] == std::vector<std::uint32_t>{1, 1});
}

}  // namespace
}  // namespace plimsoll
