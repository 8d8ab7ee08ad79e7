// What the devices of a point compute at least, and what fills and drains its pipeline.
//
// A device r runs, for each of m micro-batches, the forwards F and the backwards B of its parts once at least, one
// after the other. It begins when the first micro-batch has passed the forwards of all stages before its first one;
// behind its last backward the micro-batch of that still has to pass the backwards of these. So
//     time >= before + m (F + B) + max(behind, U)
// with the updates U of its parameters, of which replicas that share states do 1/d each. Where the backward is split
// the weight gradients W may come behind what the stages before wait for:
//     time >= max(before + m (F + B) + U, before + m (F + B - W) + behind),  `behind` without the parts for weights.
// full_recompute runs every stage of a part again but the last one, which has just run.
//
// A part of any device takes m micro-batches' forwards, f each, one after the other: the one that comes last begins the
// rest of its way m - 1 of them after the first could. Likewise with the backwards b for inputs. So, of any part,
//     time >= F + B of the model + (m - 1) max(f, b),  B for inputs only where the backward is split.
//
// Updates within the backward are work of the device like others. On a host (zero_offload) they begin when the device
// has run its last backward, and all of those of its devices go over its processor. Parameters come back from them, so
// that this copy begins no earlier:
//     time >= min over a host's devices of (before + m (F + B)) + what all of them move / what the host moves
//     time >= before + m (F + B) + copies of the parameters
//
// The cut is that of the strategies (balanced) where the stages' times are those at hand. ZeRO 2 and 3 add what stages
// wait for, and may cut elsewhere: until that is known, means hold. Devices have m (F + B) / p of the model, and of p v
// parts the longest pass is a p v-th of F at least; full_recompute runs all stages again but p v of them.
//
// Without a pipeline and without a saver that plans by stages a rank runs its ops one after the other.

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include "strategies/hybrid/cluster/bounds.h"
#include "strategies/list.h"

namespace plimsoll {
namespace {

Seconds of_device(const BoundedPoint& of, const DeviceCosts& device) {
  const double m = of.micro_batches;
  Seconds pass = device.forward + device.backward;
  if (of.point.saving().behind == &full_recompute_strategy) pass += device.again;
  const Seconds updates = updates_bound(of.point, device);
  const Seconds own = device.before + m * pass;
  if (!of.point.way().splits_backward) return own + std::max(device.behind, updates);
  return std::max(own + updates, own - m * device.weight + device.behind_input);
}

/// What full_recompute runs again at least, wherever so many parts are cut: all but one stage of each.
Seconds repeated(const RankCosts& costs, std::uint32_t parts) {
  std::vector<Seconds> again;
  for (const RankStage& stage : costs.stages) again.push_back(stage.again);
  std::ranges::sort(again);
  return std::accumulate(again.begin(), again.end() - parts, Seconds{});
}

/// Forwards and backwards of a device, with those that it waits for.
Seconds passes_of(const BoundedPoint& of, const DeviceCosts& device) {
  const double m = of.micro_batches;
  Seconds pass = device.forward + device.backward;
  if (of.point.saving().behind == &full_recompute_strategy) pass += device.again;
  const Seconds by_stages = device.before + m * pass;
  return of.point.runs_by_ops() ? std::min(m * of.costs.ops, by_stages) : by_stages;
}

Seconds with_updates_on_hosts(const BoundedPoint& of) {
  if (of.point.updating().strategy != &zero_offload_strategy || of.hosts.empty() || !of.is_cut_known) return {};
  struct OnHost {
    Seconds begin, updates;
  };
  std::map<std::uint32_t, OnHost> by_host;
  const double share = 1.0 / (of.point.zero > 0 ? of.point.sharers() : 1);
  Seconds longest;
  for (std::size_t r = 0; r < of.devices.size(); ++r) {
    const DeviceHost& host = of.hosts[r];
    const Seconds begin = passes_of(of, of.devices[r]);
    const auto [found, is_first] = by_host.try_emplace(host.host, OnHost{begin, {}});
    OnHost& all = found->second;
    all.begin = std::min(all.begin, begin);
    if (host.updates.value > 0) all.updates += share * (of.devices[r].host_moves / host.updates);
    longest = std::max({longest, all.begin + all.updates, begin + share * (of.devices[r].trained / host.in)});
  }
  return longest;
}

Seconds on_devices(const BoundedPoint& of) {
  const double m = of.micro_batches;
  if (of.point.stages == 1) {
    const Seconds by_stages = of_device(of, of.devices.front());
    if (!of.point.runs_by_ops()) return by_stages;
    return std::min(m * of.costs.ops + updates_bound(of.point, of.devices.front()), by_stages);
  }
  Seconds longest, sum, way, longest_pass, forward;
  for (const DeviceCosts& device : of.devices) {
    longest = std::max(longest, of_device(of, device));
    longest_pass = std::max(longest_pass, device.longest_pass);
    sum += device.forward + device.backward;
    forward += device.forward;
    way += device.forward + device.backward;
    if (of.point.way().splits_backward) way = way - device.weight;
  }
  if (of.is_cut_known) return std::max(longest, way + (m - 1) * longest_pass);
  const std::uint32_t parts = of.point.stages * of.point.chunks;
  if (of.point.saving().behind == &full_recompute_strategy) sum += repeated(of.costs, parts);
  return std::max(m / of.point.stages * sum, way + (m - 1) / parts * forward);
}

}  // namespace

Seconds updates_bound(const ClusterPoint& point, const DeviceCosts& device) {
  const double share = 1.0 / (point.zero > 0 ? point.sharers() : 1);
  return point.keeps_states() ? share * device.updates : Seconds{};
}

Seconds computation_bound(const BoundedPoint& of) {
  return std::max(on_devices(of), with_updates_on_hosts(of));
}

}  // namespace plimsoll
