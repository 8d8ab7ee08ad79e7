// What does not fit the devices goes to their hosts and comes back, in points that offload and recompute nothing else.
//
// Before a device's first backward its k micro-batches in flight have left A bytes for theirs, beside its parameters
// and states S. At most M of all that are on it, the budget: E = S + A - M at least are away. They have left after they
// were made, and come back later, since a backward reads them. From the second backward on its gradients are there too,
// which adds to E where they wait for the end.
//
// Without a pipeline a device has one micro-batch at a time: a forward and the copies of what it makes begin when the
// backward before has ended, and this one ends behind the copies that bring back what it reads. So of m micro-batches
//     time >= sum over them of max(F, E / out) + max(B, E / in),  then the updates.
// In a pipeline those in flight before backwards 1, 1 + k, 1 + 2 k, ... of a device are not the same, so that
//     time >= (E of the first + (floor(m / k) - 1) E of later ones) / out,  and likewise for the way back.
// Copies are as fast as a lone one.

#include <algorithm>

#include "strategies/hybrid/cluster/bounds.h"
#include "strategies/list.h"

namespace plimsoll {
namespace {

Bytes beyond(Bytes kept, Bytes budget) {
  return std::max(kept - budget, Bytes{});
}

/// Of one micro-batch; the lesser of what its stages and its ops take.
struct Passes {
  Seconds forward, backward;
};

Passes own_passes(const BoundedPoint& of) {
  const DeviceCosts& device = of.devices.front();
  Passes made{device.forward, device.backward};
  if (of.point.saving().behind == &full_recompute_strategy) made.backward += device.again;
  if (!of.point.runs_by_ops()) return made;
  return {std::min(made.forward, of.costs.ops - of.costs.backward_ops), std::min(made.backward, of.costs.backward_ops)};
}

Seconds on_one_device(const BoundedPoint& of, const KeptInFlight& kept) {
  const DeviceHost& host = of.hosts.front();
  const Passes own = own_passes(of);
  const auto micro_batch = [&](Bytes away) {
    return std::max(own.forward, away / host.out) + std::max(own.backward, away / host.in);
  };
  const double later = of.micro_batches - 1.0;
  return micro_batch(beyond(kept.first, *of.budget)) + later * micro_batch(beyond(kept.later, *of.budget)) +
         updates_bound(of.point, of.devices.front());
}

}  // namespace

Seconds copies_bound(const BoundedPoint& of) {
  if (!of.budget || of.hosts.empty() || of.point.offload == 0) return {};
  Seconds longest;
  for (std::uint32_t r = 0; r < of.devices.size(); ++r) {
    const KeptInFlight kept = kept_in_flight(of, r);
    if (kept.micro_batches == 0) continue;
    if (of.point.stages == 1) return on_one_device(of, kept);
    const double later = of.micro_batches / kept.micro_batches - 1.0;
    const Bytes first = beyond(kept.first, *of.budget), each = beyond(kept.later, *of.budget);
    const DeviceHost& host = of.hosts[r];
    const BytesPerSecond slower{std::min(host.out.value, host.in.value)};
    longest = std::max(longest, first / slower + later * (each / slower));
  }
  return longest;
}

}  // namespace plimsoll
