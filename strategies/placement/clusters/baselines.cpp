// Placements to compare with: `one_device`, `round_robin`, `contiguous`, `critical_path` and `glb`.

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "strategies/placement/clusters/clusters.h"
#include "strategies/placement/emulation.h"
#include "strategies/placement/op_dag.h"
#include "strategies/placement/units.h"

namespace plimsoll {
namespace {

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

/// From the node with the largest bottom level along edges that keep it; of equals the smallest number.
std::vector<std::uint32_t> mean_critical_path(const OpDag& dag, const Machine& machine) {
  const std::vector<Nanoseconds> time = mean_times(dag, machine), transfer = mean_transfers(dag, machine);
  const std::vector<Nanoseconds> bottom = levels(dag, time, transfer).bottom;
  std::vector<std::uint32_t> path;
  if (dag.size == 0) return path;
  path.push_back(static_cast<std::uint32_t>(std::ranges::max_element(bottom) - bottom.begin()));
  for (bool goes_on = true; goes_on;) {
    goes_on = false;
    const std::uint32_t v = path.back();
    for (std::size_t e = dag.out.first[v]; e < dag.out.first[v + 1] && !goes_on; ++e) {
      const std::uint32_t next = dag.out.items[e].node;
      if (bottom[v] != time[v] + transfer[e] + bottom[next]) continue;
      path.push_back(next);
      goes_on = true;
    }
  }
  return path;
}

}  // namespace

PlacementOutcome place_on_one(const OpDag& dag, const Machine& machine) {
  auto made = units_of(dag, machine);
  if (Infeasible* none = std::get_if<Infeasible>(&made)) return std::move(*none);
  const Units& units = std::get<Units>(made);
  for (const std::uint32_t p : units.fastest_first()) {
    Assignment assignment(units);
    for (std::uint32_t u = 0; u < units.size(); ++u) {
      if (units.is_free[u]) assignment.put(u, p);
    }
    assignment.put_rest();
    Placement placement = assignment.placement();
    if (!overfull(dag, machine, placement)) return placement;
  }
  if (dag.size == 0) return Placement{};
  return Infeasible{.reason = "no device can hold all ops", .smallest = {}};
}

extern constinit const StrategyInfo one_device_strategy{
    .name = "one_device",
    .family = Family::placement,
    .summary = "All ops on the fastest device that can hold them.",
    .source = "folklore",
    .options = filling_options,
    .kind = placed_within<one_device_strategy, place_on_one>,
};

PlacementOutcome place_round_robin(const OpDag& dag, const Machine& machine) {
  auto made = units_of(dag, machine);
  if (Infeasible* none = std::get_if<Infeasible>(&made)) return std::move(*none);
  const Units& units = std::get<Units>(made);
  Assignment assignment(units);
  std::size_t turn = 0;
  for (std::uint32_t u = 0; u < units.size(); ++u) {
    if (units.is_free[u]) assignment.put(u, units.field[turn++ % units.field.size()]);
  }
  assignment.put_rest();
  return assignment.placement();
}

extern constinit const StrategyInfo round_robin_strategy{
    .name = "round_robin",
    .family = Family::placement,
    .summary = "Ops to the devices in turn: the baseline of a placement that knows nothing.",
    .source = "folklore",
    .options = placing_options,
    .kind = placed_by<round_robin_strategy, place_round_robin>,
};

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

// Source: Jeon et al., "Baechi: fast device placement of machine learning graphs", SoCC 2020 (m-TOPO).
extern constinit const StrategyInfo contiguous_strategy{
    .name = "contiguous",
    .family = Family::placement,
    .summary = "m-TOPO: consecutive pieces of a topological order, of about equal memory, one a device",
    .source = "Jeon et al., 'Baechi: fast device placement of machine learning graphs', SoCC 2020",
    .options = filling_options,
    .kind = placed_within<contiguous_strategy, place_contiguous>,
};

PlacementOutcome place_critical_path(const OpDag& dag, const Machine& machine) {
  auto made = units_of(dag, machine);
  if (Infeasible* none = std::get_if<Infeasible>(&made)) return std::move(*none);
  const Units& units = std::get<Units>(made);
  const std::vector<std::uint32_t> by_speed = units.fastest_first();
  Assignment assignment(units);
  for (const std::uint32_t v : mean_critical_path(dag, machine)) {
    const std::uint32_t u = units.of[v];
    if (units.is_free[u] && !assignment.is_put(u)) assignment.put(u, by_speed.front());
  }
  assignment.put_rest();
  return assignment.placement();
}

// Source: Mayer, Mayer, Laich, "The TensorFlow partitioning and scheduling problem: it's the critical path!", DIDL
// 2017.
extern constinit const StrategyInfo critical_path_strategy{
    .name = "critical_path",
    .family = Family::placement,
    .summary = "the critical path on the fastest device, every other op on the least loaded one",
    .source =
        "Mayer, Mayer, Laich, 'The TensorFlow partitioning and scheduling problem: it's the critical path!', "
        "DIDL 2017",
    .options = placing_options,
    .kind = placed_by<critical_path_strategy, place_critical_path>,
};

PlacementOutcome place_by_load(const OpDag& dag, const Machine& machine) {
  std::vector<std::uint32_t> alone(dag.size);
  std::iota(alone.begin(), alone.end(), 0u);
  const std::vector<Nanoseconds> free_transfers(dag.out.items.size(), 0);
  return merged_by_load(dag, machine, alone, levels(dag, mean_times(dag, machine), free_transfers).top);
}

PlacementOutcome merged_by_load(const OpDag& dag, const Machine& machine, std::span<const std::uint32_t> cluster,
                                std::span<const Nanoseconds> start) {
  auto made = units_of(dag, machine);
  if (Infeasible* none = std::get_if<Infeasible>(&made)) return std::move(*none);
  const Units& units = std::get<Units>(made);
  const std::vector<Nanoseconds> time = mean_times(dag, machine);
  struct Cluster {
    Nanoseconds start = cannot_run;
    std::vector<std::uint32_t> units;
  };
  std::vector<Cluster> clusters(dag.size);
  for (std::uint32_t u = 0; u < units.size(); ++u) {
    if (!units.is_free[u]) continue;
    const std::uint32_t longest =
        *std::ranges::max_element(units.nodes[u], {}, [&](std::uint32_t v) { return time[v]; });
    Cluster& into = clusters[cluster[longest]];
    into.units.push_back(u);
    for (const std::uint32_t v : units.nodes[u]) into.start = std::min(into.start, start[v]);
  }
  std::erase_if(clusters, [](const Cluster& each) { return each.units.empty(); });
  std::ranges::stable_sort(clusters, {}, &Cluster::start);
  Assignment assignment(units);
  for (const Cluster& each : clusters) assignment.put_least_loaded(each.units);
  assignment.put_rest();
  return assignment.placement();
}

// Source: Radulescu, van Gemund, Lin, "LLB: a fast and effective scheduling algorithm for distributed-memory systems",
// IPPS 1999, of which guided load balancing is the mapping of clusters without communication.
extern constinit const StrategyInfo glb_strategy{
    .name = "glb",
    .family = Family::placement,
    .summary = "guided load balancing: ops by their earliest start, each to the least loaded device",
    .source =
        "Radulescu, van Gemund, Lin, 'LLB: a fast and effective scheduling algorithm for distributed-memory "
        "systems', IPPS 1999",
    .options = placing_options,
    .kind = placed_by<glb_strategy, place_by_load>,
};

}  // namespace plimsoll
