#pragma once
// Time, memory and traffic of a simulated (or measured) schedule.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/core/lower_bounds.h"
#include "sim/core/problem.h"
#include "sim/core/schedule.h"
#include "sim/core/timeline.h"

namespace plimsoll {

struct DeviceMetrics {
  std::string name;
  Bytes peak_live;
  Seconds busy;                 ///< time in which some compute stream of the device is at work
  std::uint32_t in_flight = 0;  ///< micro-batches between their first forward and their last compute there, at most
  bool fits = true;
};

struct Metrics {
  Seconds makespan;
  Bytes peak;                  ///< of the fullest device
  Seconds recompute;           ///< sum of the durations of steps that repeat an op
  std::size_t recomputes = 0;  ///< number of these steps
  Bytes moved;                 ///< bytes of all transfers
  Seconds exposed_transfer;    ///< time in which a device copies and computes nothing, summed over devices
  Seconds exchange;            ///< of ranks in collectives of a rank's graph, summed over devices
  Seconds exposed_exchange;    ///< of that, time in which a device computes nothing
  double bubble = 0;           ///< share of (devices used x makespan) in which a device that is used computes nothing
  Seconds longest_stage;       ///< from a device's first compute step to its last, of the device that takes longest
  Seconds ideal;               ///< all that devices compute, shared evenly by those used
  std::optional<Seconds> period;  ///< from one micro-batch's end to the next one's, in the median; unset: one only
  bool fits = true;               ///< no device exceeds its budget
  std::vector<DeviceMetrics> devices;
};

Metrics measure(const Problem&, const Schedule&, const Timeline&);

/// How many devices the schedule uses.
std::size_t devices_used(const Schedule&);

}  // namespace plimsoll
