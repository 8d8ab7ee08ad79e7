#pragma once
// Other models of what it takes to send a value from one device to another, as published planners and schedulers have
// them. For timing only.

#include <cstdint>
#include <vector>

#include "sim/core/platform.h"
#include "sim/core/schedule.h"
#include "sim/core/timeline.h"

namespace plimsoll {

/// c is the route's latency and the bytes over its narrowest link.
enum class Transfers : std::uint8_t {
  link,      ///< as the platform has them: in order on each way between two devices, links shared
  delay,     ///< c each, however many are on their way (zero bubble's schedulers)
  blocking,  ///< the sender computes nothing for c after what it sends, nor the receiver for c, at the earliest at the
             ///< same time, before what reads it (SAPP's simulator)
  added,     ///< the same one after the other: c more for both (Piper, dnn-partitioning)
  none,      ///< at once (Alpa, Chimera's and DualPipe's tables)
};

/// A schedule for timing, and which of its steps are those of the one it is made from. The others stand for devices
/// that are held up, and for what hosts do. They allocate nothing.
struct Retimed {
  Schedule schedule;
  std::vector<StepId> steps;  ///< by step of the first schedule

  /// Puts a step behind the others of the schedule for timing.
  StepId add(Step, const std::vector<StepId>& waits);
};
Retimed with_transfers(const Schedule&, const Platform&, Transfers);

/// The first schedule's timeline, from that of the other.
Timeline of_first(const Retimed&, Timeline);

}  // namespace plimsoll
