#pragma once
// Time, memory and traffic of a simulated (or measured) schedule.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/core/schedule.h"
#include "sim/core/timeline.h"
#include "sim/measure/lower_bounds.h"
#include "sim/model/problem.h"

namespace plimsoll {

struct DeviceMetrics {
  std::string name;
  Bytes peak_live;
  Seconds busy;                 ///< time in which some compute stream of the device is at work
  std::uint32_t in_flight = 0;  ///< micro-batches between their first forward and their last compute there, at most
  bool fits = true;
};

/// A memory that is no device's: a host's, or a disk.
struct MemoryMetrics {
  std::string name;
  bool is_host = false;
  Bytes peak;
  std::optional<Bytes> capacity;  ///< unset: unlimited
};

/// Collectives along one axis of the mesh, or of a group over several; summed over devices.
struct AxisMetrics {
  std::string axis;
  Seconds exchange, exposed;
};

struct Metrics {
  Seconds makespan;
  Bytes peak;                     ///< of the fullest device
  Seconds recompute;              ///< sum of the durations of steps that repeat an op
  std::size_t recomputes = 0;     ///< number of these steps
  Bytes moved;                    ///< bytes of all transfers
  Seconds exposed_transfer;       ///< time in which a device copies and computes nothing, summed over devices
  Seconds exchange;               ///< of all collectives of a rank's graph, two at once each, summed over devices
  Seconds exposed_exchange;       ///< time in which a device is in any of them and computes nothing
  std::vector<AxisMetrics> axes;  ///< the same for each axis by itself, by name
  double bubble = 0;      ///< share of (devices used x makespan) in which a device that is used computes nothing
  Seconds longest_stage;  ///< from a device's first compute step to its last, of the device that takes longest
  Seconds ideal;          ///< all that devices compute, shared evenly by those used
  std::optional<Seconds> period;  ///< from one micro-batch's end to the next one's, in the median; unset: one only
  bool fits = true;               ///< no device exceeds its budget
  std::vector<DeviceMetrics> devices;
  std::vector<MemoryMetrics> memories;  ///< that are no device's and hold something
};

Metrics measure(const Problem&, const Schedule&, const Timeline&);

/// Of the host that is fullest; none holds anything: 0.
Bytes host_peak(const Metrics&);

/// How many devices the schedule uses.
std::size_t devices_used(const Schedule&);

}  // namespace plimsoll
