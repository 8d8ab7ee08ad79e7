#pragma once
// One simulation in a child process.

#include "sim/core/timeline.h"
#include "sim/engine/program.h"

namespace plimsoll {

/// Forks, simulates in the child, and brings back its timeline, or what it said when it failed, as an EngineError.
Timeline run_isolated(const Program&);

}  // namespace plimsoll
