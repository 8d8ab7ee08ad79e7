#pragma once
// Hosts that issue kernels: one thread a device, in the order of the schedule, ahead of the device. A step begins when
// it is issued. So an iteration is bound by the host where that is slower for long, and by the device elsewhere.
// Where what a device computes next waits for each value that it sends (1f1b(sends=blocking)), hosts wait as well
// before they issue it, and before they issue what waits for a value from another device.

#include "sim/core/schedule.h"
#include "sim/measure/transfers.h"
#include "sim/model/problem.h"

namespace plimsoll {

/// Whether some device of the platform states what its host takes to issue a kernel.
bool have_issuing_hosts(const Platform&);

/// The schedule with a stream a device on which its host issues the ops that the device computes. Copies, packed forms
/// and steps that only free are issued at once.
Retimed issued_by_hosts(const Schedule&, const Problem&);

/// What the busiest host takes to issue all that its device computes.
Seconds longest_issue(const Schedule&, const Problem&);

}  // namespace plimsoll
