#include "strategies/hybrid/pipeline_merit.h"

#include <limits>

#include "strategies/compose/plan_on_devices.h"

namespace plimsoll {

PipelineMerit pipeline_merit(const Problem& folded, const Pass& pipeline, std::span<const Pass> memory) {
  const std::optional<Bytes> capacity = folded.platform[folded.platform.devices.front().memory].capacity;
  const PartsOutcome outcome = plan_on_devices(folded, pipeline, memory, std::span(&capacity, 1)).front();
  if (const PlannedParts* made = std::get_if<PlannedParts>(&outcome)) return {false, made->makespan.value};
  const std::optional<Bytes> smallest = std::get<Infeasible>(outcome).smallest;
  return {true, smallest ? static_cast<double>(smallest->count) : std::numeric_limits<double>::infinity()};
}

}  // namespace plimsoll
