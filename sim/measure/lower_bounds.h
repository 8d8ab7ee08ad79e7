#pragma once
// What no such schedule can beat: time by the work per device and the critical path, memory by the largest working set.

#include <algorithm>
#include <optional>
#include <span>

#include "sim/core/schedule.h"
#include "sim/model/problem.h"

namespace plimsoll {

struct LowerBounds {
  Seconds work;                   ///< durations of all ops of all micro-batches, shared evenly by the devices
  Seconds critical_path;          ///< the longest chain of ops of one micro-batch that read each other's values; what
                                  ///< a forward does not only save may come from a run that saves nothing
  Bytes memory;                   ///< on the fullest device
  std::optional<OpId> memory_by;  ///< the op whose working set `memory` is; unset: that of the resident tensors, or of
                                  ///< an evaluation beside these

  Seconds time() const { return std::max(work, critical_path); }
};

/// What must stay on the devices during the whole iteration. A bound holds for schedules that keep at least this there.
enum class Stays : std::uint8_t {
  all,         ///< parameters, optimizer states, and gradients once made; updates run on the devices
  parameters,  ///< parameters only: gradients, states and their updates may be on a host, or gradients leave with
               ///< updates that come within the iteration
  nothing,
};

/// What stays on the devices in this schedule.
Stays stays_in(const Schedule&, const Graph&, const Platform&);

/// Bounds for schedules that use this many devices and pack values by no other codecs than these. Memory is the largest
/// sum, over all ops, of what must be there while the op runs, as far as it stays:
///  - what the op reads, in the smallest form that it can do with, and makes, and its workspace;
///  - parameter gradients that the ops before it must have made;
///  - the network's input while it is still to be read, in its smallest form;
///  - on a single device all parameters and optimizer states.
/// Time counts the updates if they stay on the devices.
LowerBounds lower_bounds(const Problem&, std::size_t devices, Stays = Stays::all, std::span<const Codec> = {});

}  // namespace plimsoll
