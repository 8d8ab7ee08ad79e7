#include "strategies/placement/clusters/clusters.h"
#include "strategies/placement/units.h"

namespace plimsoll {
namespace {

constexpr auto round_robin_options = options_of<PlacingOptions>(place_on_option, homes_option, queue_option);

std::vector<PartitionOutcome> round_robin_partition(const Problem& problem, const PlacingOptions& options,
                                                    std::span<const std::optional<Bytes>> budgets) {
  return placed(problem, options, "round_robin", budgets, false, place_round_robin);
}

}  // namespace

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
    .summary = "Ops to the devices in turn: what a placement is worth that knows nothing.",
    .source = "folklore",
    .options = round_robin_options,
    .kind = PartitionStrategy{.partition = by_options<round_robin_partition>},
};

}  // namespace plimsoll
