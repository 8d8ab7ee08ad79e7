// Nested cuts against all sides of small networks.

#include "sim/bound/cuts_between.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <optional>

#include "sim/bound/max_flow.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

struct SmallNetwork {
  std::uint32_t nodes = 2;
  std::vector<PricedArc> arcs;
};

/// Nodes that cost seconds on the source's side, edges that cost bytes, and some that are never cut.
SmallNetwork small_network(Random& random) {
  SmallNetwork network{static_cast<std::uint32_t>(random.between(3, 9)), {}};
  for (std::uint32_t n = 2; n < network.nodes; ++n) {
    const bool never = random.between(0, 9) == 0;
    network.arcs.push_back({n, 1, never ? FlowGraph::unlimited : static_cast<double>(random.between(0, 5)), 0});
  }
  const auto node = [&](std::uint32_t least) {
    return static_cast<std::uint32_t>(random.between(least, network.nodes - 1));
  };
  for (std::int64_t k = random.between(2, 14); k > 0; --k) {
    const std::uint32_t from = random.between(0, 2) == 0 ? 0 : node(2), to = random.between(0, 3) == 0 ? 1 : node(2);
    if (from == to) continue;
    const bool never = from != 0 && to != 1 && random.between(0, 4) == 0;
    network.arcs.push_back({from, to, never ? FlowGraph::unlimited : 0.0, static_cast<double>(random.between(1, 6))});
  }
  return network;
}

/// Infinite where it cuts what is never cut. At an infinite price bytes alone count.
double cost_of(const SmallNetwork& network, const std::vector<bool>& side, double price) {
  double seconds = 0, bytes = 0;
  for (const PricedArc& arc : network.arcs) {
    if (!side[arc.from] || side[arc.to]) continue;
    seconds += arc.seconds;
    bytes += arc.bytes;
  }
  if (std::isinf(seconds)) return seconds;
  return std::isinf(price) ? bytes : seconds + price * bytes;
}

/// What is on the source's side in every cut that costs the least.
std::vector<bool> least_side(const SmallNetwork& network, double price) {
  double least = FlowGraph::unlimited;
  std::vector<bool> common;
  for (std::uint32_t set = 0; set < 1U << (network.nodes - 2); ++set) {
    std::vector<bool> side{true, false};
    for (std::uint32_t n = 2; n < network.nodes; ++n) side.push_back((set >> (n - 2) & 1U) != 0);
    const double cost = cost_of(network, side, price);
    if (cost > least + 1e-9 || std::isinf(cost)) continue;
    if (cost < least - 1e-9) common = side;
    least = std::min(least, cost);
    for (std::size_t n = 0; n < side.size(); ++n) common[n] = common[n] && side[n];
  }
  return common;
}

double bytes_on_nothing(const SmallNetwork& network) {
  double bytes = 0;
  for (const PricedArc& arc : network.arcs) bytes += arc.from == 0 ? arc.bytes : 0;
  return bytes;
}

TEST_CASE("a best cut at a price is found between best ones of a lower and a higher price", "[bound][property]") {
  // No two sums of a network cost the same at one price and not at another that is so near.
  const std::vector<double> prices{0.0371, 0.213, 0.457, 1.019, 2.113, 7.031, FlowGraph::unlimited};
  std::size_t different = 0;
  for (const RandomCase seed : random_cases(1, 400)) {
    Random random(seed);
    const SmallNetwork network = small_network(random);
    const double most = bytes_on_nothing(network);
    const CutsBetween all(network.nodes, network.arcs, most);
    for (std::size_t low = 0; low < prices.size(); ++low) {
      const CutsBetween::Found first = all.at(prices[low]);
      REQUIRE(all.source_side(first) == least_side(network, prices[low]));
      for (std::size_t high = low + 2; high < prices.size(); ++high) {
        const CutsBetween behind = all.behind(first);
        const CutsBetween::Found second = behind.at(prices[high]);
        REQUIRE(behind.source_side(second) == least_side(network, prices[high]));
        const CutsBetween between = behind.before(second);
        for (std::size_t middle = low + 1; middle < high; ++middle) {
          CAPTURE(seed, low, middle, high);
          const CutsBetween::Found found = between.at(prices[middle]);
          const std::vector<bool> side = between.source_side(found);
          REQUIRE(side == least_side(network, prices[middle]));
          const double cost = cost_of(network, side, prices[middle]);
          const double more = cost - cost_of(network, all.source_side(first), prices[middle]);
          CHECK(found.seconds + prices[middle] * found.bytes == Approx(more).margin(1e-9));
          const double proven = least_cost(network.arcs, side, prices[middle], most);
          CHECK(proven <= cost);
          CHECK(proven == Approx(cost).margin(1e-9));
          different += side != all.source_side(first) && side != behind.source_side(second) ? 1 : 0;
        }
      }
    }
  }
  if (all_cases()) CHECK(different > 500);
}

}  // namespace
}  // namespace plimsoll
