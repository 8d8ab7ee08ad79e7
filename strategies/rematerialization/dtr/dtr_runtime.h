#pragma once
// Dynamic tensor rematerialization: runs a log of operator calls within a budget, evicting what seems cheapest when
// room is needed and computing again, recursively, what is missing. Online: it never looks ahead in the log. The rules,
// down to the order of the pool and ties, are those of simrd's runtime with eager eviction, so that clock, evictions
// and rematerialisations agree to the digit (docs/strategies/rematerialization/dtr.md). Except: `random` draws from a
// generator of our own and cannot equal Python's. Source: Kirisame, Lyubomirsky, Haan, Brennan, He, Roesch, Chen,
// Tatlock, "Dynamic Tensor Rematerialization", 2021.

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/model/op_log.h"
#include "strategies/rematerialization/dtr/dtr_pool.h"

namespace plimsoll {

struct DtrOptions {
  std::optional<Bytes> budget;  ///< unset: unlimited
  DtrHeuristic heuristic = DtrHeuristic::dtr;
  std::uint64_t seed = 0;                               ///< of `random`
  std::optional<std::int64_t> rematerialization_limit;  ///< ns; the run ends once more has been spent on it
};

enum class DtrEnd : std::uint8_t { finished, out_of_memory, thrashing };

struct DtrRun {
  DtrEnd end = DtrEnd::finished;
  std::int64_t clock = 1;  ///< 1 + ns of all calls run
  std::int64_t rematerialization_time = 0;
  std::int64_t evictions = 0;        ///< for want of room
  std::int64_t eager_evictions = 0;  ///< at the release of the last reference
  std::int64_t rematerializations = 0;
  Bytes peak;               ///< results and resident storages; workspaces too
  std::vector<OpId> calls;  ///< in the order in which they ran, rematerialisations included
};

DtrRun run_dtr(const OpLog&, const DtrOptions&);

/// What the log needs without a budget: time of all calls, and the peak when each storage dies with its last reference
/// (simrd's banishing runtime with infinite memory).
struct DtrBaseline {
  std::int64_t compute = 0;
  Bytes memory;
};
DtrBaseline dtr_baseline(const OpLog&);

/// A replay as the paper counts it: stopped once rematerialisation takes more than (limit - 1) times the baseline's
/// time; overhead is the clock over the baseline's time.
struct DtrReplay {
  DtrRun run;
  DtrBaseline baseline;
  double overhead = 0;
};
DtrReplay replay_dtr_log(const OpLog&, std::optional<Bytes> budget, DtrHeuristic, std::uint64_t seed = 0,
                         double thrash_limit = 2);

// A log played to a runtime, one event at a time, to its end or until the runtime gives up.

/// Thrown by a runtime, out of the innermost rematerialisation.
struct DtrStop {
  DtrEnd why;
};

template <class Runtime>
DtrEnd play(const OpLog& log, Runtime& runtime) try {
  for (const OpLog::Event& event : log.events) {
    switch (event.kind) {
      case OpLog::EventKind::call:
        runtime.call(event.index);
        break;
      case OpLog::EventKind::reference:
        runtime.refer(event.index);
        break;
      case OpLog::EventKind::release:
        runtime.release(event.index);
        break;
    }
  }
  for (const TensorId t : log.kept) runtime.keep(t.index);
  return DtrEnd::finished;
} catch (const DtrStop& stop) {
  return stop.why;
}

}  // namespace plimsoll
