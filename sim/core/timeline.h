#pragma once
// When each step of a schedule ran, and how full each memory was. Engines and the replay on hardware both return this.

#include <cstdint>
#include <vector>

#include "sim/core/ids.h"
#include "sim/core/schedule.h"
#include "sim/core/units.h"

namespace plimsoll {

/// Several things may happen at one date: first everything that finishes there, then everything that this releases, and
/// so on. Rounds number these waves from 0 within a date; in each, finishes and frees precede starts and allocations.
struct Interval {
  Seconds start, finish;
  std::uint32_t start_round = 0, finish_round = 0;

  friend constexpr bool operator==(const Interval&, const Interval&) = default;
};

/// The peak of one memory.
struct MemoryPeak {
  Bytes bytes;
  StepId step;           ///< the step whose start made it; meaningless when `at_start`
  bool at_start = true;  ///< nothing ever exceeded what is resident from the start

  friend constexpr bool operator==(const MemoryPeak&, const MemoryPeak&) = default;
};

struct Timeline {
  std::vector<Interval> steps;    ///< one per step of the schedule
  Seconds makespan;               ///< the last finish
  std::vector<MemoryPeak> peaks;  ///< one per memory of the platform, live bytes
};

}  // namespace plimsoll
