#pragma once
// What no schedule can beat: time by the work per device and by the critical path, memory by the largest working set.

#include <algorithm>
#include <optional>

#include "sim/core/problem.h"
#include "sim/core/schedule.h"

namespace plimsoll {

struct LowerBounds {
  Seconds work;                   ///< durations of all ops of all micro-batches, shared evenly by the devices
  Seconds critical_path;          ///< the longest chain of ops of one micro-batch that read each other's values
  Bytes memory;                   ///< of the fullest device
  std::optional<OpId> memory_by;  ///< the op whose working set it is; unset: what is resident anyway

  Seconds time() const { return std::max(work, critical_path); }
};

/// What never leaves the devices while an iteration runs. Bounds are for schedules that leave there what they say.
enum class Stays : std::uint8_t {
  all,         ///< parameters, their gradients once made, optimizer states; updates run on the devices
  parameters,  ///< gradients and states may leave, and updates with them
  nothing,
};

/// What stays in the schedule, by what is resident where.
Stays stays_in(const Schedule&, const Graph&, const Platform&);

/// For schedules that use this many devices. Memory counts, while an op runs: what it reads and makes, its workspace,
/// parameter gradients that the ops before it must have made, the network's input while it is still to be read, and on
/// a single device all parameters and optimizer states; of these only what stays. Time counts updates where they stay.
/// Compression of values may go below it.
LowerBounds lower_bounds(const Problem&, std::size_t devices, Stays = Stays::all);

}  // namespace plimsoll
