#pragma once
// One simulation in a child process.

#include <cstddef>

#include "sim/core/timeline.h"
#include "sim/engine/program.h"
#include "sim/engine/simgrid/shared_memory.h"

namespace plimsoll {

/// Forks and simulates in the child, which leaves its timeline in the memory. Throws what it said when it failed, as an
/// EngineError.
void run_isolated(const Program&, SharedMemory&);

/// Bytes of a timeline in memory.
std::size_t size_of_timeline(std::size_t steps, std::size_t memories);

void write_timeline(const Timeline&, SharedMemory&);
Timeline read_timeline(const SharedMemory&, std::size_t steps, std::size_t memories);

}  // namespace plimsoll
