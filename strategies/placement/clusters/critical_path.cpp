#include <algorithm>

#include "strategies/placement/clusters/clusters.h"
#include "strategies/placement/lists/levels.h"
#include "strategies/placement/units.h"

// Source: Mayer, Mayer, Laich, "The TensorFlow partitioning and scheduling problem: it's the critical path!", DIDL
// 2017.

namespace plimsoll {
namespace {

constexpr auto critical_path_options = options_of<PlacingOptions>(place_on_option, homes_option, queue_option);

std::vector<PartitionOutcome> critical_path_partition(const Problem& problem, const PlacingOptions& options,
                                                      std::span<const std::optional<Bytes>> budgets) {
  return placed(problem, options, "critical_path", budgets, false, place_critical_path);
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

extern constinit const StrategyInfo critical_path_strategy{
    .name = "critical_path",
    .family = Family::placement,
    .summary = "the critical path on the fastest device, every other op on the least loaded one",
    .source =
        "Mayer, Mayer, Laich, 'The TensorFlow partitioning and scheduling problem: it's the critical path!', "
        "DIDL 2017",
    .options = critical_path_options,
    .kind = PartitionStrategy{.partition = by_options<critical_path_partition>},
};

}  // namespace plimsoll
