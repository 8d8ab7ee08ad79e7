#pragma once
// SimGrid inside this process. SimGrid keeps one engine, one clock and its options per process, so a process may run
// one simulation only: use simgrid_engine.h, which forks.

#include "sim/core/timeline.h"
#include "sim/engine/program.h"

namespace plimsoll {

/// Makes SimGrid's engine with textbook options, unless this process has it already. Leaves signal handlers alone.
void prepare_simgrid();

/// Runs the one simulation of this process.
Timeline run_simgrid(const Program&);

}  // namespace plimsoll
