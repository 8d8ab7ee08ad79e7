#include <fmt/format.h>

#include <algorithm>

#include "strategies/placement/clusters/clusters.h"
#include "strategies/placement/emulation.h"
#include "strategies/placement/units.h"

// Source: Jeon et al., "Baechi: fast device placement of machine learning graphs", SoCC 2020 (m-TOPO).

namespace plimsoll {
namespace {

constexpr auto contiguous_options =
    options_of<PlacingOptions>(place_on_option, homes_option, queue_option, usable_option);

std::vector<PartitionOutcome> contiguous_partition(const Problem& problem, const PlacingOptions& options,
                                                   std::span<const std::optional<Bytes>> budgets) {
  return placed(problem, options, "contiguous", budgets, true, place_contiguous);
}

/// By unit: workspaces, values made there, residents whose first user is there.
std::vector<std::int64_t> bytes_of_units(const OpDag& dag, const Units& units) {
  std::vector<std::int64_t> bytes(units.size(), 0);
  for (std::uint32_t v = 0; v < dag.size; ++v) bytes[units.of[v]] += dag.workspace[v];
  for (const DagValue& value : dag.values) {
    if (value.maker != no_node) bytes[units.of[value.maker]] += value.bytes;
  }
  for (const DagResident& resident : dag.residents) bytes[units.of[resident.users.front()]] += resident.bytes;
  return bytes;
}

/// In which nodes become ready, first come first served (Kahn).
std::vector<std::uint32_t> order_of_readiness(const OpDag& dag) {
  std::vector<std::uint32_t> order;
  std::vector<std::size_t> waits(dag.size);
  for (std::uint32_t v = 0; v < dag.size; ++v) {
    waits[v] = dag.in[v].size();
    if (waits[v] == 0) order.push_back(v);
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    for (const DagEdge& edge : dag.out[order[i]]) {
      if (--waits[edge.node] == 0) order.push_back(edge.node);
    }
  }
  return order;
}

/// By processor of the field: what it is filled to. The least level at which all bytes fit, and the largest unit above
/// it, at most its memory; where all memories are too small for all bytes, which need not live at one time, their
/// shares of them instead.
std::vector<std::int64_t> caps(const Machine& machine, const Units& units, std::span<const std::int64_t> bytes) {
  std::int64_t left = 0, largest = 0;
  for (std::uint32_t u = 0; u < units.size(); ++u) {
    if (!units.is_free[u]) continue;
    left += bytes[u];
    largest = std::max(largest, bytes[u]);
  }
  std::vector<std::int64_t> memory;
  double there = 0;
  for (const std::uint32_t p : units.field) {
    memory.push_back(machine.memory[p]);
    there += static_cast<double>(machine.memory[p]);
  }
  std::vector<std::int64_t> made;
  if (there < static_cast<double>(left)) {
    for (const std::int64_t each : memory) {
      made.push_back(static_cast<std::int64_t>(static_cast<double>(left) * (static_cast<double>(each) / there)) +
                     largest);
    }
    return made;
  }
  std::vector<std::int64_t> sorted = memory;
  std::ranges::sort(sorted);
  std::int64_t level = 0;
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    level = left / static_cast<std::int64_t>(sorted.size() - i);
    if (sorted[i] >= level) break;
    left -= sorted[i];
  }
  for (const std::int64_t each : memory) made.push_back(std::min(each, level + largest));
  return made;
}

}  // namespace

PlacementOutcome place_contiguous(const OpDag& dag, const Machine& machine) {
  auto made = units_of(dag, machine);
  if (Infeasible* none = std::get_if<Infeasible>(&made)) return std::move(*none);
  const Units& units = std::get<Units>(made);
  const std::vector<std::int64_t> bytes = bytes_of_units(dag, units);
  const std::vector<std::int64_t> cap = caps(machine, units, bytes);
  Assignment assignment(units);
  std::size_t at = 0;
  std::int64_t filled = 0;
  for (const std::uint32_t v : order_of_readiness(dag)) {
    const std::uint32_t u = units.of[v];
    if (!units.is_free[u] || assignment.is_put(u)) continue;
    while (at + 1 < cap.size() && filled + bytes[u] > cap[at]) {
      ++at;
      filled = 0;
    }
    assignment.put(u, units.field[at]);
    filled += bytes[u];
  }
  assignment.put_rest();
  Placement placement = assignment.placement();
  if (const auto p = overfull(dag, machine, placement)) {
    return Infeasible{.reason = fmt::format("device {} cannot hold its piece of the topological order", *p),
                      .smallest = {}};
  }
  return placement;
}

extern constinit const StrategyInfo contiguous_strategy{
    .name = "contiguous",
    .family = Family::placement,
    .summary = "m-TOPO: consecutive pieces of a topological order, of about equal memory, one a device",
    .source = "Jeon et al., 'Baechi: fast device placement of machine learning graphs', SoCC 2020",
    .options = contiguous_options,
    .kind = PartitionStrategy{.partition = by_options<contiguous_partition>},
};

}  // namespace plimsoll
