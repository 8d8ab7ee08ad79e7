#pragma once
// The least time in which devices that may be unlike do some work, whoever does what.

#include <vector>

#include "sim/core/units.h"
#include "sim/model/device_classes.h"

namespace plimsoll {

/// How long an op takes on each class of devices.
using OnEachClass = std::vector<Seconds>;

/// A bound for any assignment of ops, in fractions or whole, to so many devices of the platform that these classes are
/// of: the sum of the ops' least times, over the devices; and for unlike devices, all of them together, the dual of the
/// fractional assignment, of which every feasible point is a bound:
///   sum over ops of the least of price x time, where the prices of all devices add to 1.
/// Ops of a micro-batch run once for each of them, updates once.
struct IterationWork {
  std::vector<OnEachClass> micro_batch, updates;
  double micro_batches = 1;
};
Seconds shared_work(const IterationWork&, const DeviceClasses&, std::size_t devices);

}  // namespace plimsoll
