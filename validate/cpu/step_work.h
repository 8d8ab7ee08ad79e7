#pragma once
// What a step's thread computes, without any of the replay's state: kernels and conversions at their addresses.

#include <cstddef>
#include <optional>

#include "validate/batch.h"
#include "validate/cpu/cpu_network.h"
#include "validate/reference/chance.h"
#include "validate/replay_plan.h"

namespace plimsoll {

/// Why the CPU cannot run the plan, with the first step that it has no kernel for; nothing if it can.
std::optional<ReplayFailure> lacks_kernel(const Problem&, const ReplayPlan&, const CpuNetwork&);

void run_call(const CpuNetwork&, const PlannedCall&, const KernelArguments&);

/// Of a loss that has just run, which was given labels; nothing for other ops.
std::optional<Score> score_of(const CpuNetwork&, const PlannedCall&, const KernelArguments&);

/// `graph`: of the schedule. Throws std::runtime_error where the values need more than the packed form has.
void convert(const Graph& graph, const PlannedConversion&, const Chance&, const std::byte* from, std::byte* to,
             std::byte* workspace);

}  // namespace plimsoll
