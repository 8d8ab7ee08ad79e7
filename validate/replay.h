#pragma once
// Schedule -> measured Timeline: judged first, then run.

#include <variant>

#include "validate/backend.h"
#include "validate/cpu/cpu_replay.h"

namespace plimsoll {

/// Runs a schedule. What check() rejects is refused before anything runs.
std::variant<Replayed, ReplayFailure> replay(const Problem&, const Schedule&, RunnableNetwork&, const ReplayOptions&);

/// The same on the CPU, with kernels and memory at hand.
std::variant<Replayed, ReplayFailure> replay(const Problem&, const Schedule&, const CpuNetwork&, BlockPool&,
                                             const ReplayOptions&);

}  // namespace plimsoll
