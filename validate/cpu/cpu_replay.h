#pragma once
// Runs a schedule with real tensors and kernels on the CPU: every stream a thread, every wait an event, devices' and
// hosts' memories apart, copies between them at the pace of the platform's links.

#include <variant>

#include "sim/core/schedule.h"
#include "sim/model/problem.h"
#include "validate/cpu/block_pool.h"
#include "validate/cpu/cpu_network.h"
#include "validate/replay_plan.h"
#include "validate/replayed.h"

namespace plimsoll {

/// `plan` is that of the schedule and of the network of `cpu`.
std::variant<Replayed, ReplayFailure> replay_on_cpu(const Problem&, const Schedule&, const ReplayPlan& plan,
                                                    const CpuNetwork& cpu, BlockPool&, const ReplayOptions&);

}  // namespace plimsoll
