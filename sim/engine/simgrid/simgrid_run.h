#pragma once
// SimGrid inside this process, which has one engine, one clock and one platform: use simgrid_engine.h, which forks. It
// is in a library of its own, loaded when first needed.

#include "sim/core/timeline.h"
#include "sim/engine/program.h"

namespace plimsoll {

/// `plimsoll_simgrid` of libplimsoll_simgrid.so.
struct SimgridRun {
  /// Makes SimGrid's engine with textbook options, unless this process has it already. Leaves signal handlers alone.
  void (*prepare)();

  /// Whether this process can run it: any as the first, and then those with the same platform, if the clock of this
  /// version of SimGrid can be set back.
  bool (*can_run)(const Program&);

  /// After one that threw, none can be run.
  Timeline (*run)(const Program&);
};

/// Loads the library: once, 40 ms, and best before a fork.
const SimgridRun& simgrid();

}  // namespace plimsoll
