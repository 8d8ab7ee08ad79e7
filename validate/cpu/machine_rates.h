#pragma once
// What this machine's CPU does as a device with a host behind a link: rates for a platform file, measured.

#include <functional>
#include <optional>
#include <string>

#include "validate/cpu/paced_copy.h"
#include "validate/measured_rates.h"

namespace plimsoll {

/// `proceed` is asked between measurements, and told which comes next; where it says no, nothing is returned.
std::optional<MachineRates> measure_machine(LinkPace to_host, LinkPace to_device, std::size_t repetitions,
                                            const std::function<bool(const std::string& next)>& proceed);

/// The processor's name as it says, from /proc/cpuinfo.
std::string this_processor();

}  // namespace plimsoll
