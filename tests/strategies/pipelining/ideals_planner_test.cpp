// The dynamic program over ideals against every placement there is, on small graphs: each node of the forward is put on
// each device and host in turn, and what is contiguous by the definition (no path leaves a device and comes back to it,
// nor goes through devices in a circle) is priced node by node.

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>

#include "strategies/pipelining/planners/ideals.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

constexpr double no_placement = std::numeric_limits<double>::infinity();

/// The time of the fullest device; nodes of `on` are numbered devices first, then hosts.
double fullest(const IdealsProblem& p, const std::vector<std::uint32_t>& on) {
  double most = 0;
  for (std::uint32_t place = 0; place < p.devices + p.hosts; ++place) {
    double time = 0, bytes = 0;
    for (std::uint32_t n = 0; n < p.nodes.size(); ++n) {
      const bool here = on[n] == place;
      if (place >= p.devices) {
        if (here) time += p.nodes[n].host.value_or(no_placement);
        continue;
      }
      if (here) time += p.nodes[n].device.value_or(no_placement);
      if (here) bytes += p.nodes[n].bytes;
      for (const auto& [from, to] : p.edges) {
        if (from != n || (on[from] == place) == (on[to] == place)) continue;
        time += p.nodes[n].sent;
        break;
      }
    }
    if (place < p.devices && p.device_bytes && bytes > *p.device_bytes) return no_placement;
    most = std::max(most, time);
  }
  return most;
}

/// Whether devices can be put in a row that the forward's edges follow.
bool is_in_a_row(const IdealsProblem& p, const std::vector<std::uint32_t>& on) {
  std::vector<std::vector<bool>> before(p.devices + p.hosts, std::vector<bool>(p.devices + p.hosts, false));
  for (const auto& [from, to] : p.edges) {
    if (!p.nodes[from].backward && !p.nodes[to].backward && on[from] != on[to]) before[on[from]][on[to]] = true;
  }
  for (std::size_t k = 0; k < before.size(); ++k) {
    for (auto& row : before) {
      for (std::size_t j = 0; j < row.size(); ++j) row[j] = row[j] || (row[k] && before[k][j]);
    }
  }
  for (std::size_t k = 0; k < before.size(); ++k) {
    if (before[k][k]) return false;
  }
  return true;
}

double best_placement(const IdealsProblem& p) {
  std::vector<std::uint32_t> on(p.nodes.size(), 0);
  const std::uint32_t places = p.devices + p.hosts;
  double best = no_placement;
  while (true) {
    bool apart = false;
    for (std::uint32_t a = 0; a < on.size(); ++a) {
      for (std::uint32_t b = 0; b < a; ++b) {
        apart = apart || (p.nodes[a].together && p.nodes[a].together == p.nodes[b].together && on[a] != on[b]);
      }
    }
    if (!apart && is_in_a_row(p, on)) best = std::min(best, fullest(p, on));
    std::size_t k = 0;
    while (k < on.size() && ++on[k] == places) on[k++] = 0;
    if (k == on.size()) return best;
  }
}

IdealsProblem random_placement(Random& random, bool training) {
  IdealsProblem p;
  const std::uint32_t forward = random.between(1, training ? 4 : 7);
  for (std::uint32_t n = 0; n < forward; ++n) {
    IdealsProblem::Node node{.device = random.below(9), .host = random.between(5, 30), .bytes = 1.0 * random.below(9)};
    if (random.chance(0.1)) node.device.reset();
    if (random.chance(0.2)) node.device = 0, node.host = 0;
    node.sent = 0.5 * random.below(6);
    if (training) node.together = n;
    if (!training && random.chance(0.2)) node.together = random.below(2);
    p.nodes.push_back(node);
    for (std::uint32_t from = 0; from < n; ++from) {
      if (random.chance(0.4)) p.edges.emplace_back(from, n);
    }
  }
  if (training) {
    const std::size_t edges = p.edges.size();
    for (std::uint32_t n = 0; n < forward; ++n) {
      IdealsProblem::Node node{.device = random.below(9), .host = random.between(5, 30)};
      node.sent = 0.5 * random.below(6);
      node.backward = true;
      node.together = n;
      p.nodes.push_back(node);
    }
    for (std::size_t e = 0; e < edges; ++e) {
      p.edges.emplace_back(forward + p.edges[e].second, forward + p.edges[e].first);
      if (random.chance(0.3)) p.edges.emplace_back(p.edges[e].first, forward + p.edges[e].second);
    }
  }
  p.devices = random.between(1, 3);
  p.hosts = random.below(2);
  if (random.chance(0.4)) p.device_bytes = random.between(4, 30);
  return p;
}

void compare_placements(const IdealsProblem& problem) {
  const double best = best_placement(problem);
  const IdealsOutcome outcome = plan_ideals(problem);
  // Groups that take no time are joined to their neighbour, which costs nothing but room.
  if (!outcome.plan) {
    CHECK(best == no_placement);
    return;
  }
  CHECK(outcome.plan->seconds == Approx(best).epsilon(1e-12));
  std::vector<std::uint32_t> on(problem.nodes.size(), problem.devices + problem.hosts);
  std::uint32_t devices = 0, hosts = 0;
  for (const IdealsPlan::Set& set : outcome.plan->sets) {
    const std::uint32_t place = set.host ? problem.devices + hosts++ : devices++;
    for (const std::uint32_t n : set.nodes) on[n] = place;
  }
  REQUIRE(devices <= problem.devices);
  REQUIRE(hosts <= problem.hosts);
  CHECK(fullest(problem, on) == Approx(outcome.plan->seconds).epsilon(1e-12));
  CHECK(is_in_a_row(problem, on));
}

TEST_CASE("ideals finds the best placement of small graphs in a row of devices and hosts", "[planners][ideals]") {
  for (const RandomCase seed : random_cases(1, 150)) {
    Random random(seed);
    IdealsProblem problem = random_placement(random, false);
    if (problem.device_bytes) {  // where room is scarce, joining what takes no time may cost some
      for (IdealsProblem::Node& node : problem.nodes) {
        if (node.device == 0.0 && node.host == 0.0) node.bytes = 0;
      }
    }
    compare_placements(problem);
  }
}

TEST_CASE("ideals puts a layer's backward where its forward is", "[planners][ideals]") {
  for (const RandomCase seed : random_cases(1, 100)) {
    Random random(seed);
    IdealsProblem problem = random_placement(random, true);
    problem.device_bytes.reset();
    compare_placements(problem);
  }
}

// Backward node 2 has no forward of its own: it stands before node 1's group, as its edge to 1's backward, reversed,
// says.
TEST_CASE("ideals orders a backward without a forward by the edges of the backward", "[planners][ideals]") {
  IdealsProblem problem;
  const auto node = [&](double device, bool backward, std::optional<std::uint32_t> together) {
    problem.nodes.push_back({.device = device, .bytes = 0, .sent = 0, .backward = backward, .together = together});
  };
  node(4, false, 0);
  node(4, true, 0);
  node(8, true, std::nullopt);
  problem.edges = {{0, 1}, {2, 1}};
  problem.devices = 2;
  const IdealsOutcome outcome = plan_ideals(problem);
  REQUIRE(outcome.plan);
  CHECK(outcome.plan->seconds == 8);
  REQUIRE(outcome.plan->sets.size() == 2);
  CHECK(outcome.plan->sets[0].nodes == std::vector<std::uint32_t>{0, 1});
  CHECK(outcome.plan->sets[1].nodes == std::vector<std::uint32_t>{2});
}

}  // namespace
}  // namespace plimsoll
