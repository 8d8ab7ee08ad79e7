#include <algorithm>
#include <cmath>

#include "strategies/placement/partitions.h"
#include "strategies/placement/units.h"
#include "strategies/solve/graph_partition.h"

// Ops and groups as an undirected graph of 32-bit integers: weights are mean times on the chosen processors, those of
// edges mean transfers, both in nanoseconds, or in so many that all sum to less than 2^30.

namespace plimsoll {
namespace {

constexpr double largest_sum = 1u << 30;

/// In units of which the sum is below `largest_sum`, none less than 1.
std::vector<std::int32_t> scaled(std::span<const double> nanoseconds) {
  double sum = 0;
  for (const double each : nanoseconds) sum += each;
  const double room = largest_sum - static_cast<double>(nanoseconds.size());
  const double scale = sum > room ? room / sum : 1;
  std::vector<std::int32_t> made;
  made.reserve(nanoseconds.size());
  for (const double each : nanoseconds) {
    made.push_back(std::max(1, static_cast<std::int32_t>(std::floor(scale * each))));
  }
  return made;
}

/// Free units, numbered anew.
struct FreeUnits {
  std::vector<std::uint32_t> unit;    // by number
  std::vector<std::uint32_t> number;  // by unit; no_node: not free
};

FreeUnits free_units(const Units& units) {
  FreeUnits made{{}, std::vector<std::uint32_t>(units.size(), no_node)};
  for (std::uint32_t u = 0; u < units.size(); ++u) {
    if (!units.is_free[u]) continue;
    made.number[u] = static_cast<std::uint32_t>(made.unit.size());
    made.unit.push_back(u);
  }
  return made;
}

WeightedGraph undirected(const OpDag& dag, const Machine& machine, const Units& units, const FreeUnits& free) {
  struct Neighbour {
    std::uint32_t number = 0;
    double transfer = 0;
  };
  WeightedGraph made;
  std::vector<double> time, transfer;
  std::vector<Neighbour> row;
  for (const std::uint32_t u : free.unit) {
    double sum = 0;
    for (const std::uint32_t p : units.field) sum += static_cast<double>(units.time[p][u]);
    time.push_back(sum / static_cast<double>(units.field.size()));
    row.clear();
    const auto note = [&](const DagEdge& edge) {
      const std::uint32_t other = units.of[edge.node];
      if (other == u || free.number[other] == no_node) return;
      row.push_back({free.number[other], edge.sends ? static_cast<double>(machine.mean_transfer(edge.bytes)) : 0});
    };
    for (const std::uint32_t v : units.nodes[u]) {
      for (const DagEdge& edge : dag.in[v]) note(edge);
      for (const DagEdge& edge : dag.out[v]) note(edge);
    }
    std::ranges::sort(row, [](const Neighbour& a, const Neighbour& b) {
      return a.number != b.number ? a.number < b.number : a.transfer < b.transfer;  // sums are the same at both ends
    });
    for (const Neighbour& each : row) {
      const bool is_new = made.neighbour.size() == static_cast<std::size_t>(made.first.back()) ||
                          made.neighbour.back() != static_cast<std::int32_t>(each.number);
      if (is_new) {
        made.neighbour.push_back(static_cast<std::int32_t>(each.number));
        transfer.push_back(each.transfer);
      } else {
        transfer.back() += each.transfer;
      }
    }
    made.first.push_back(static_cast<std::int32_t>(made.neighbour.size()));
  }
  made.weight = scaled(time);
  made.edge_weight = scaled(transfer);
  return made;
}

}  // namespace

PlacementOutcome place_by_library(const std::string& library, const OpDag& dag, const Machine& machine,
                                  std::int32_t seed) {
  auto made = units_of(dag, machine);
  if (Infeasible* none = std::get_if<Infeasible>(&made)) return std::move(*none);
  const Units& units = std::get<Units>(made);
  std::vector<std::uint32_t> processors;  // those with a share
  std::vector<double> share;
  const std::vector<double> all_shares = shares(units);
  for (std::size_t i = 0; i < all_shares.size(); ++i) {
    if (all_shares[i] <= 0) continue;
    processors.push_back(units.field[i]);
    share.push_back(all_shares[i]);
  }
  const FreeUnits free = free_units(units);
  Assignment assignment(units);
  if (free.unit.size() <= processors.size()) {  // libraries give nonsense here
    for (std::size_t i = 0; i < free.unit.size(); ++i) assignment.put(free.unit[i], processors[i]);
  } else if (processors.size() == 1) {
    for (const std::uint32_t u : free.unit) assignment.put(u, processors.front());
  } else {
    const WeightedGraph graph = undirected(dag, machine, units, free);
    const GraphParts found = partition_graph(library, graph, share, seed);
    if (const auto* const why = std::get_if<std::string>(&found)) return Infeasible{.reason = *why, .smallest = {}};
    const auto& parts = std::get<std::vector<std::int32_t>>(found);
    for (std::size_t i = 0; i < free.unit.size(); ++i) {
      assignment.put(free.unit[i], processors[static_cast<std::size_t>(parts[i])]);
    }
  }
  assignment.put_rest();
  return assignment.placement();
}

}  // namespace plimsoll
