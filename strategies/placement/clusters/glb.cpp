#include <algorithm>
#include <numeric>

#include "strategies/placement/clusters/clusters.h"
#include "strategies/placement/lists/levels.h"
#include "strategies/placement/units.h"

// Source: Radulescu, van Gemund, Lin, "LLB: a fast and effective scheduling algorithm for distributed-memory systems",
// IPPS 1999, of which guided load balancing is the mapping of clusters without communication.

namespace plimsoll {
namespace {

constexpr auto glb_options = options_of<PlacingOptions>(place_on_option, homes_option, queue_option);

std::vector<PartitionOutcome> glb_partition(const Problem& problem, const PlacingOptions& options,
                                            std::span<const std::optional<Bytes>> budgets) {
  return placed(problem, options, "glb", budgets, false, place_by_load);
}

}  // namespace

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

extern constinit const StrategyInfo glb_strategy{
    .name = "glb",
    .family = Family::placement,
    .summary = "guided load balancing: ops by their earliest start, each to the least loaded device",
    .source =
        "Radulescu, van Gemund, Lin, 'LLB: a fast and effective scheduling algorithm for distributed-memory "
        "systems', IPPS 1999",
    .options = glb_options,
    .kind = PartitionStrategy{.partition = by_options<glb_partition>},
};

}  // namespace plimsoll
