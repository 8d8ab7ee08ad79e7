#pragma once
// The reference engine: the same dispatcher over SimGrid. Every simulation has a process of its own, so that it starts
// at date 0 with nothing behind it, gives the same bits every time, and cannot take this process down with it.

#include <memory>
#include <mutex>

#include "sim/core/platform.h"
#include "sim/core/schedule.h"
#include "sim/core/timeline.h"
#include "sim/engine/program.h"

namespace plimsoll {

class SharedMemory;

/// When each step runs. Throws EngineError where schedule and platform do not go together or the process that
/// simulates fails, SimulationInterrupted where it is interrupted. Forks: where this process has threads by then,
/// prefer a SimgridForkserver started before them.
Timeline simulate_simgrid(const Schedule&, const Platform&);

/// A small process that forks one child per simulation: cheaper than forking this process once that is large, and safe
/// while it has threads. One simulation at a time; a sweep starts one server per thread, before its threads.
/// The server outlives Ctrl-C (its children do not) and ends with this object or with this process.
class SimgridForkserver {
 public:
  SimgridForkserver();
  ~SimgridForkserver();
  SimgridForkserver(const SimgridForkserver&) = delete;
  SimgridForkserver& operator=(const SimgridForkserver&) = delete;

  /// As simulate_simgrid.
  Timeline simulate(const Schedule&, const Platform&);
  Timeline simulate(const Program&);

 private:
  std::mutex one_at_a_time_;
  std::unique_ptr<SharedMemory> memory_;  ///< programs go to the server in it, timelines come back
  int socket_ = -1;
  int server_ = -1;  ///< process
};

}  // namespace plimsoll
