#pragma once
// What this machine's CPU does as a device with a host behind a link: rates for a platform file, measured.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "validate/cpu/paced_copy.h"

namespace plimsoll {

/// The median of repeated measurements, and where half of them lie.
struct MeasuredRate {
  double median = 0, lower_quartile = 0, upper_quartile = 0;
};

struct MachineRates {
  MeasuredRate to_host, to_device, both_ways;       ///< bytes a second of large copies; of one direction while both run
  MeasuredRate to_host_latency, to_device_latency;  ///< seconds of a copy of 64 bytes
  std::vector<MeasuredRate> slowdown;               ///< of kernels while 0, 1, 2 copies run; the first is 1
  MeasuredRate flops;                               ///< a second, of a product of 512 x 512 matrices
  MeasuredRate update_traffic;                      ///< bytes a second that Adam's update moves, seven a parameter byte
  MeasuredRate launch;                              ///< seconds that a kernel of next to no work takes
  MeasuredRate allocation;                          ///< seconds to take a block of the replay's pool and give it back
};

/// `proceed` is asked between measurements, and told which comes next; where it says no, nothing is returned.
std::optional<MachineRates> measure_machine(LinkPace to_host, LinkPace to_device, std::size_t repetitions,
                                            const std::function<bool(const std::string& next)>& proceed);

/// The processor's name as it says, from /proc/cpuinfo.
std::string processor_name();

}  // namespace plimsoll
