#pragma once
// The reference engine: the same dispatcher over SimGrid, which runs in other processes, so that it cannot take this
// one down with it. Every simulation starts at date 0 and gives the same bits every time. Where nothing is shared and
// nothing slowed down every date is known: SimGrid would have nothing to do, and is not asked.

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

/// A small process that forks a child, which simulates one program after the other as long as their platforms are the
/// same to SimGrid; then it forks the next. Safe while this process has threads. One simulation at a time; a sweep
/// starts one server per thread, before its threads. The server outlives Ctrl-C (its children do not) and ends with
/// this object or with this process.
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
