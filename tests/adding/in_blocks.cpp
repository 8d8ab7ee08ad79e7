// The placement `in_blocks`: ops in their order, each device an equal share of the work.

#include <algorithm>
#include <cstdint>
#include <utility>

#include "strategies/placement/placing.h"
#include "strategies/placement/units.h"

namespace plimsoll {
namespace {

PlacementOutcome place_in_blocks(const OpDag& dag, const Machine& machine) {
  auto made = units_of(dag, machine);
  if (Infeasible* none = std::get_if<Infeasible>(&made)) return std::move(*none);
  const Units& units = std::get<Units>(made);
  const auto time = [&](std::uint32_t u) { return units.is_free[u] ? units.time[units.field.front()][u] : 0; };
  Nanoseconds all = 1, before = 0;
  for (std::uint32_t u = 0; u < units.size(); ++u) all += time(u);
  Assignment assignment(units);
  for (std::uint32_t u = 0; u < units.size(); ++u) {
    const auto block = static_cast<std::size_t>(before * static_cast<Nanoseconds>(units.field.size()) / all);
    if (units.is_free[u]) assignment.put(u, units.field[block]);
    before += time(u);
  }
  assignment.put_rest();
  return assignment.placement();
}

}  // namespace

extern constinit const StrategyInfo in_blocks_strategy{
    .name = "in_blocks",
    .family = Family::placement,
    .summary = "places ops in their order, an equal share of the work on each device",
    .source = "own, as an example",
    .options = placing_options,
    .kind = placed_by<in_blocks_strategy, place_in_blocks>,
};

}  // namespace plimsoll
