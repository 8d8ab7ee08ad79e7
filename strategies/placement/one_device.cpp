#include "strategies/placement/clusters/clusters.h"
#include "strategies/placement/units.h"

namespace plimsoll {
namespace {

constexpr auto one_device_options =
    options_of<PlacingOptions>(place_on_option, homes_option, queue_option, usable_option);

std::vector<PartitionOutcome> one_device_partition(const Problem& problem, const PlacingOptions& options,
                                                   std::span<const std::optional<Bytes>> budgets) {
  return placed(problem, options, "one_device", budgets, true, place_on_one);
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
    .options = one_device_options,
    .kind = PartitionStrategy{.partition = by_options<one_device_partition>},
};

}  // namespace plimsoll
