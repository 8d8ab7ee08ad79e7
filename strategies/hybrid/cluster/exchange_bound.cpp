// What the replicas of a point exchange at least, beside what their devices compute: one exchange after the other.
//
// Data parallelism and ZeRO 1 sum gradients once they are complete: not before the last micro-batch's backward of a
// part begins (of its weight gradients, where these are apart), which is the last thing that a device of one part
// computes. So time >= before + m (F + B) - B + exchanges. Of several parts on a device all but one may be through
// earlier: the longest last backward, and the least exchange of a part, hold.
//
// Ranks that share out positions likewise sum whole gradients over them, beside what replicas exchange: the longer of
// both holds.
//
// Ranks that share out experts are one replica here: what they exchange of tokens is computation to them, and their
// sums of the other gradients are left out.
//
// ZeRO 2 and 3 exchange for every micro-batch: time >= m times that, of a device's mean where the cut is not known. Of
// several groups (HSDP) a replica exchanges that within its own; the sums over groups are left out.

#include <algorithm>

#include "strategies/hybrid/cluster/bounds.h"
#include "strategies/list.h"

namespace plimsoll {
namespace {

Seconds computed(const BoundedPoint& of, const DeviceCosts& device) {
  const double m = of.micro_batches;
  if (of.point.runs_by_ops()) return m * of.costs.ops - of.costs.backward_ops;
  Seconds pass = device.forward + device.backward;
  const bool repeats = of.point.saving().behind == &full_recompute_strategy;
  if (repeats) pass += device.again;
  return device.before + m * pass - (of.point.way().splits_backward ? device.last_weight : device.last_backward);
}

}  // namespace

Seconds exchange_bound(const BoundedPoint& of) {
  if (of.point.alike() == 1 && of.point.context == 1) return {};
  Seconds longest, each_time, most;
  for (std::size_t r = 0; r < of.devices.size(); ++r) {
    if (of.point.zero < 2) longest = std::max(longest, computed(of, of.devices[r]) + of.shared[r].once);
    each_time += of.shared[r].each_time;
    most = std::max(most, of.shared[r].each_time);
  }
  const double m = of.micro_batches;
  return std::max(longest, of.is_cut_known ? m * most : m / of.point.stages * each_time);
}

}  // namespace plimsoll
