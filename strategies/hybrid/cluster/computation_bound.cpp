// What the devices of a point compute at least, and what fills and drains its pipeline.
//
// A device r runs, for each of m micro-batches, the forwards F and the backwards B of its parts once at least, one
// after the other. It begins when the first micro-batch has passed the forwards of all stages before its first one;
// behind its last backward the micro-batch of that still has to pass the backwards of these. So
//     time >= before + m (F + B) + max(behind, U)
// with the updates U of its parameters, of which replicas that share states do 1/d each. Where the backward is split
// the weight gradients W may come behind what the stages before wait for:
//     time >= max(before + m (F + B) + U, before + m (F + B - W) + behind),  `behind` without the parts for weights.
// full_recompute runs every stage of a part again but the last one, which has just run. What planners run again since
// memory forces it comes on top (recomputation_bound.cpp).
//
// A part of any device takes m micro-batches' forwards, f each, one after the other: the one that comes last begins the
// rest of its way m - 1 of them after the first could. Likewise with the backwards b for inputs. So, of any part,
//     time >= F + B of the model + (m - 1) max(f, b),  B for inputs only where the backward is split.
//
// Updates within the backward are work of the device like others. On a host they begin when the device has run its last
// backward, and all of those of its devices go over its processor:
//     time >= min over a host's devices of (before + m (F + B)) + what all of them move / what the host moves
// Of zero_offload it moves all, and parameters come back from it, so that this copy begins no earlier:
//     time >= before + m (F + B) + copies of the parameters
// Of twinflow it moves no less than for the states that the device has no memory for. It updates nothing, or a tenth of
// the parameters at least. Nothing on any device is the plan of another point where `device` is asked for, too:
//     time >= before + m (F + B) + min(U, a tenth on the host),  there of one device without U
// Of deep_optimizer_states a share x of the states is updated there, and the others go to the device and back:
//     time >= before + m (F + B) + min over x of max(x H, (1 - x) C) = ... + H C / (H + C)
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

Seconds of_device(const BoundedPoint& of, std::uint32_t rank) {
  const DeviceCosts& device = of.devices[rank];
  const double m = of.micro_batches;
  Seconds pass = device.forward + device.backward;
  if (of.point.saving().behind == &full_recompute_strategy) pass += device.again;
  const Seconds updates = updates_bound(of.point, device);
  const Seconds own = device.before + m * pass + recomputation_bound(of, rank);
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

/// What updates elsewhere than on devices take at least.
class UpdatesElsewhere {
 public:
  explicit UpdatesElsewhere(const BoundedPoint& of)
      : of_(of), share_(1.0 / (of.point.zero > 0 ? of.point.sharers() : 1)) {}

  Seconds bound() && {
    for (std::uint32_t r = 0; r < of_.devices.size(); ++r) add(r);
    const bool is_one_apart = of_.has_device_twin && of_.point.updating().strategy == &twinflow_strategy;
    return is_one_apart ? std::max(longest_, *least_with_host_) : longest_;
  }

 private:
  struct OnHost {
    Seconds begin, updates;
  };

  void add(std::uint32_t rank) {
    const DeviceCosts& device = of_.devices[rank];
    const DeviceHost& host = of_.hosts[rank];
    const Seconds begin = passes_of(of_, device);
    const Seconds on_host = least_on_host(rank);
    OnHost& all = by_host_.try_emplace(host.host, OnHost{begin, {}}).first->second;
    all.begin = std::min(all.begin, begin);
    all.updates += on_host;
    longest_ = std::max({longest_, all.begin + all.updates, begin + own(device, host, on_host)});
    const Seconds with_host = begin + std::max(on_host, tenth_on_host(device, host));
    least_with_host_ = std::min(least_with_host_.value_or(with_host), with_host);
  }

  /// That this device's updates take of its host.
  Seconds least_on_host(std::uint32_t rank) const {
    const DeviceCosts& device = of_.devices[rank];
    if (of_.point.updating().strategy == &zero_offload_strategy) return on_host(device.host_moves, of_.hosts[rank]);
    if (of_.point.updating().strategy != &twinflow_strategy) return {};
    const Bytes away = states_beyond(of_, rank);
    return away > Bytes{} ? moved(device.moves_a_state * static_cast<double>(away.count), of_.hosts[rank]) : Seconds{};
  }

  /// Behind a device's last backward, whatever others leave to the same host.
  Seconds own(const DeviceCosts& device, const DeviceHost& host, Seconds on_host) const {
    const StrategyInfo* strategy = of_.point.updating().strategy;
    if (strategy == &zero_offload_strategy) return share_ * (device.trained / host.in);
    if (strategy == &twinflow_strategy) {
      return std::max(on_host, std::min(share_ * device.updates, tenth_on_host(device, host)));
    }
    return least_streamed(device, host);
  }

  /// Of a tenth of its parameters, of which each has its share.
  Seconds tenth_on_host(const DeviceCosts& device, const DeviceHost& host) const {
    const Bytes tenth{device.trained.count / 10};
    return tenth > Bytes{} ? moved(share_ * device.moves_a_byte * static_cast<double>(tenth.count), host) : Seconds{};
  }

  /// All states are on hosts: what their updates take there, or their way to the device and back.
  Seconds least_streamed(const DeviceCosts& device, const DeviceHost& host) const {
    if (device.states == Bytes{} || host.updates.value == 0) return {};
    const Seconds there = moved(share_ * device.moves_a_state * static_cast<double>(device.states.count), host);
    if (there == Seconds{}) return {};
    const Seconds away = share_ * (device.states / BytesPerSecond{std::min(host.out.value, host.in.value)});
    return (there / (there + away)) * away;
  }

  Seconds on_host(Bytes moves, const DeviceHost& host) const {
    return moved(share_ * static_cast<double>(moves.count), host);
  }

  static Seconds moved(double bytes, const DeviceHost& host) {
    return host.updates.value > 0 ? Seconds{bytes / host.updates.value} : Seconds{};
  }

  const BoundedPoint& of_;
  double share_;
  std::map<std::uint32_t, OnHost> by_host_;
  Seconds longest_;
  std::optional<Seconds> least_with_host_;  // of a device that leaves anything to its host
};

Seconds with_updates_elsewhere(const BoundedPoint& of) {
  if (of.point.keeps_states() || of.hosts.empty() || !of.is_cut_known) return {};
  return UpdatesElsewhere(of).bound();
}

Seconds on_devices(const BoundedPoint& of) {
  const double m = of.micro_batches;
  if (of.point.stages == 1) {
    const Seconds by_stages = of_device(of, 0);
    if (!of.point.runs_by_ops()) return by_stages;
    return std::min(m * of.costs.ops + updates_bound(of.point, of.devices.front()), by_stages);
  }
  Seconds longest, sum, way, longest_pass, forward;
  for (std::uint32_t r = 0; r < of.devices.size(); ++r) {
    const DeviceCosts& device = of.devices[r];
    longest = std::max(longest, of_device(of, r));
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
  return std::max(on_devices(of), with_updates_elsewhere(of));
}

}  // namespace plimsoll
