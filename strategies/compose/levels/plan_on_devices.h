#pragma once
// A partition on several devices and the memory strategies' tapes of its parts, within a budget of each device.

#include <optional>
#include <span>
#include <vector>

#include "strategies/api/pass.h"
#include "strategies/compose/levels/planned_parts.h"

namespace plimsoll {

/// One outcome a budget, in order. Each is simulated: its promise is the event engine's time and peaks. Of the levels
/// at which the memory strategies make tapes of the parts, from the least memory they can do with to all they want,
/// each device has the highest that fits; what fits a smaller budget and is faster is taken from there.
std::vector<PartsOutcome> plan_on_devices(const Problem&, const Pass& partitioning, std::span<const Pass> memory,
                                          std::span<const std::optional<Bytes>> budgets);

/// Throws InputError where the passes refuse that for any budget, before tapes are made; about none where cuts and
/// orders are searched for.
void judge_on_devices(const Problem&, const Pass& partitioning, std::span<const Pass> memory,
                      std::span<const std::optional<Bytes>> budgets);

/// What the plans of those levels need, ascending.
std::vector<Bytes> front_budgets_on_devices(const Problem&, const Pass& partitioning, std::span<const Pass> memory);

/// What fits comes before what does not; of these what is faster, of those what needs less.
struct PipelineMerit {
  bool is_too_large = false;
  double seconds_or_bytes = 0;

  friend auto operator<=>(const PipelineMerit&, const PipelineMerit&) = default;
};

/// Of a problem as planners see it (for_planners), within the capacity of its first device, under a pipelining strategy
/// and the memory strategies behind it. Throws InputError where they cannot treat it.
PipelineMerit pipeline_merit(const Problem& folded, const Pass& pipeline, std::span<const Pass> memory);

/// All on the first device, one micro-batch after the other, where its ranks exchange values beside what it computes:
/// how long that takes is known by simulation only.
std::vector<PartsOutcome> plan_by_simulation(const Problem&, std::span<const Pass> memory,
                                             std::span<const std::optional<Bytes>> budgets);
std::vector<Bytes> front_budgets_by_simulation(const Problem&, std::span<const Pass> memory);

}  // namespace plimsoll
