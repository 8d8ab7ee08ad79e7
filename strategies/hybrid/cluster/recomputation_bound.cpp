// What memory forces any saver that plans by stages to run again.
//
// Before a device's first backward its k micro-batches in flight have left A bytes for theirs, beside its parameters
// and states S. At most M of all that are there, the budget: E = S + A - M at least are not, and are made again before
// the backward that reads them. A stage that runs again takes its forward, the shorter of its two kinds, and makes
// again what it has left within it and its output. So no plan takes less for these k than the least of a fractional
// knapsack:
//     min sum of again_s y_s  over shares y of the k instances of each stage with  sum of frees_s y_s >= E,
// which takes those with the least time a byte first. From the second backward on gradients are there too. Those in
// flight before backwards 1, 1 + k, 1 + 2 k, ... of a device are not the same, so that their times add up.

#include <algorithm>

#include "strategies/hybrid/cluster/bounds.h"

namespace plimsoll {
namespace {

/// Of so many micro-batches, of which so much is away together.
Seconds least_again(const DeviceCosts& device, std::uint32_t micro_batches, Bytes away) {
  Seconds sum;
  for (const Repeat& each : device.repeats) {
    const Bytes again = std::clamp(away, Bytes{}, Bytes{each.frees.count * micro_batches});
    sum += Seconds{static_cast<double>(again.count) * each.seconds_a_byte};
    away -= again;
  }
  return sum;
}

}  // namespace

Seconds recomputation_bound(const BoundedPoint& of, std::uint32_t rank) {
  if (!of.budget || of.point.saving().behind == nullptr || of.point.has_fixed_saver()) return {};
  const KeptInFlight kept = kept_in_flight(of, rank);
  if (kept.micro_batches == 0) return {};
  const auto again = [&](Bytes all) { return least_again(of.devices[rank], kept.micro_batches, all - *of.budget); };
  return again(kept.first) + (of.micro_batches / kept.micro_batches - 1.0) * again(kept.later);
}

}  // namespace plimsoll
