#pragma once
// Schedule -> measured Timeline: judged first, then run.

#include <variant>

#include "validate/cpu/cpu_replay.h"
#include "validate/replay_plan.h"

namespace plimsoll {

/// Runs a schedule on the CPU. What check() rejects is refused before anything runs.
std::variant<Replayed, ReplayFailure> replay(const Problem&, const Schedule&, const CpuNetwork&, BlockPool&,
                                             const CpuReplayOptions&);

}  // namespace plimsoll
