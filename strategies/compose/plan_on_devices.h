#pragma once
// A partition on several devices and the memory strategies' tapes of its parts, within a budget of each device.

#include <optional>
#include <span>
#include <vector>

#include "strategies/compose/plan.h"

namespace plimsoll {

/// One outcome a budget, in order. Each is simulated: its promise is the event engine's time and peaks. Of the levels
/// at which the memory strategies make tapes of the parts, from the least memory they can do with to all they want,
/// each device has the highest that fits; what fits a smaller budget and is faster is taken from there.
std::vector<PartsOutcome> plan_on_devices(const Problem&, const Pass& partitioning, std::span<const Pass> memory,
                                          std::span<const std::optional<Bytes>> budgets);

/// What the plans of those levels need, ascending.
std::vector<Bytes> front_budgets_on_devices(const Problem&, const Pass& partitioning, std::span<const Pass> memory);

/// All on the first device, one micro-batch after the other, where its ranks exchange values beside what it computes:
/// how long that takes is known by simulation only.
std::vector<PartsOutcome> plan_by_simulation(const Problem&, std::span<const Pass> memory,
                                             std::span<const std::optional<Bytes>> budgets);
std::vector<Bytes> front_budgets_by_simulation(const Problem&, std::span<const Pass> memory);

}  // namespace plimsoll
