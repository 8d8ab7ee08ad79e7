#pragma once
// Plans where hosts issue kernels ahead of devices. An iteration takes at least the devices' time and at least the
// hosts', so for each share w at least w of the hosts' and 1 - w of the devices' on one device. Planners, which know
// one time of an op, are asked for the least of that sum for several w, and for the least sum of the longer of both. Of
// all plans the one is taken that is the fastest by simulation.

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "strategies/api/pass.h"
#include "strategies/compose/levels/planned_parts.h"

namespace plimsoll {

/// For the budgets, in order, without hosts that issue.
using PlannedWithoutHosts = std::function<std::vector<PartsOutcome>(const Problem&)>;

/// The same with hosts, which the promises have, too. Where no plan fits as its host issues it, that for the devices'
/// time alone, with a peak above the budget.
std::vector<PartsOutcome> plans_with_hosts(const Problem&, std::span<const Pass>,
                                           std::span<const std::optional<Bytes>> budgets, const PlannedWithoutHosts&);

}  // namespace plimsoll
