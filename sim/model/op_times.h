#pragma once
// A problem with other times of its ops: what planners are asked about where hosts issue kernels.

#include <functional>

#include "sim/model/problem.h"

namespace plimsoll {

/// That the host of the device takes to issue the op once, also one that exchanges values.
Seconds issue_on(const Problem&, OpId, DeviceId);

/// The time that an op is to take, from that of its device and that of its host to issue it.
using OpTime = std::function<Seconds(Seconds device, Seconds issue)>;

/// The problem with these times of its ops and stages, from those of its first device; what devices exchange and hosts
/// compute keeps its own. For plans, which hold for the first problem too where devices are alike: nothing but times
/// changes.
Problem with_op_times(Problem, const OpTime&);

}  // namespace plimsoll
