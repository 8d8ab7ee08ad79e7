// What the fullest device of a point keeps at least.
//
// Static: a rank of d replicas has at least 1/d of what they share out (shares are rounded up), and all of the rest:
// parameters P and states S from the beginning to the end, gradients G at the end of the backward. With z = 3 a device
// of one part has gathered its last stage's parameters when the backward begins. With z = 2 and 3 a gradient is whole
// until it has been scattered: from the second backward of a device of one part on, beside the shares of all.
//
// Activations: A bytes are what one micro-batch leaves of a device's parts for its backward, as far as the saver has
// to keep it. Before the first backward of a rank r of p with m micro-batches so many are there:
//   1f1b, zb_h1: min(m, p - r) forwards come first, by the order of its turns.
//   gpipe: m.
//   interleaved: min(m v, (v - 1) g + 2 (p - r - 1) + 1) forwards of parts, in groups of g micro-batches; each keeps at
//     least what the smallest part keeps.
//   V: when the last part's backward of a micro-batch begins, all parts have kept what it left. How many more there
//     are the order says (order_bound.cpp).
// Without a pipeline it is one micro-batch. full_recompute keeps what enters the stages; in a backward a stage has run
// again, and what it leaves is there beside what enters the stages of its part up to it.
//
// Both: from the second backward on, the gradients are there too. Before the second backward of a line
// min(m - 1, p - r) micro-batches are in flight. With split backwards weight gradients lag behind by at most p
// micro-batches: with 2 p of them or more some are made before the last forward, at which p - r are in flight.
//
// Values that are packed, offloaded or made again as planners choose may be elsewhere, but not while an op uses them:
// what it makes is there whole, with its workspace, and what it reads too unless that is packed. What runs by stages
// has all that a stage leaves while its backward runs. That may be at any time: beside no gradients, or with several
// micro-batches beside those of a device of one part, which are there in all but the first.
//
// States are on the device unless updates leave it. Where
// updates do not wait for the end, a gradient dies or leaves once the last micro-batch has completed it: where a device
// has one part and whole backwards, all of them are there before that.
//
// ZeRO 2 and 3 in pipelines may cut elsewhere than at the stages' own times: until that is known, it is the least over
// all cuts.

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "strategies/hybrid/cluster/bounds.h"
#include "strategies/list.h"
#include "strategies/pipelining/orders/orders.h"

namespace plimsoll {
namespace {

Bytes share(Bytes whole, std::uint32_t ranks) {
  return Bytes{whole.count / ranks};
}

Bytes times(std::uint32_t count, Bytes bytes) {
  return Bytes{bytes.count * count};
}

/// Whether that is on the device until the backward.
bool stay(const ClusterPoint& point) {
  return point.has_fixed_saver() && point.compression == 0 && point.offload == 0;
}

/// What one micro-batch leaves at least: of all parts of a device, and of the smallest; and once more than that while a
/// backward runs.
struct Left {
  Bytes all, smallest, more;
};

Left left_by(const DeviceCosts& device, const ClusterPoint& point) {
  const ClusterSaver& saver = point.saving();
  if (saver.behind == nullptr) return {device.saved, device.least_saved, {}};
  return {device.inputs, device.least_inputs, std::max(device.at_repeat - device.inputs, Bytes{})};
}

/// Activations before the first backward of a rank, and those beside which its gradients are.
struct Activations {
  Bytes alone, beside_gradients;
  bool are_before_backward = true;  ///< else at any time
};

/// Whether the saver runs single ops again.
bool plans_ops(const ClusterPoint& point) {
  return point.stages == 1 && point.saving().behind == &greedy_recompute_strategy;
}

/// Where they may be elsewhere, or made again: while an op or a stage uses them.
Activations in_use(const BoundedPoint& of, const DeviceCosts& device) {
  const bool runs_by_ops = of.point.runs_by_ops() || plans_ops(of.point);
  const Bytes by_ops = of.point.compression > 0 ? device.made : device.read_and_made;
  const Bytes used = runs_by_ops ? by_ops : device.left_by_stage;
  const bool are_beside = of.micro_batches > 1 && of.point.chunks == 1 && !of.point.way().splits_backward;
  return {used, are_beside ? used : Bytes{}, false};
}

/// Where nothing is packed or offloaded, behind a saver whose kept values are known.
Activations activations_kept(const BoundedPoint& of, const DeviceCosts& device, std::uint32_t rank) {
  const ClusterSchedule& way = of.point.way();
  const std::uint32_t p = of.point.stages, m = of.micro_batches, v = of.point.chunks;
  const Left left = left_by(device, of.point);
  if (way.strategy == nullptr) return {left.all + left.more, m > 1 ? left.all + left.more : Bytes{}};
  if (way.shape == PipelineShape::v) return {left.all, {}};
  if (way.shape == PipelineShape::turns) {
    const std::uint32_t group = interleaved_groups(p, m).front();
    const std::uint32_t parts = std::min(m * v, (v - 1) * group + 2 * (p - rank - 1) + 1);
    return {std::max(times(parts, left.smallest), left.all), {}};
  }
  const std::uint32_t most = way.strategy == &gpipe_strategy ? m : std::min(m, p - rank);
  const Bytes alone = times(most, left.all) + left.more;
  if (way.splits_backward) return {alone, m >= 2 * p ? alone : Bytes{}};
  return {alone, m > 1 ? times(std::min(m - 1, most), left.all) + left.more : Bytes{}};
}

Activations activations(const BoundedPoint& of, const DeviceCosts& device, std::uint32_t rank) {
  return stay(of.point) ? activations_kept(of, device, rank) : in_use(of, device);
}

/// Whether all gradients of a device are there before the last micro-batch completes one.
bool waits_for_gradients(const BoundedPoint& of) {
  return of.micro_batches > 1 && of.point.chunks == 1 && !of.point.way().splits_backward;
}

MemoryBound larger(const MemoryBound& a, const MemoryBound& b) {
  return a.total() < b.total() ? b : a;
}

/// What is there of it beside a share while it is whole.
Bytes more_than_share(Bytes whole, std::uint32_t ranks) {
  return std::max(whole - share(whole, ranks) - Bytes{1}, Bytes{});
}

MemoryBound of_device(const BoundedPoint& of, const DeviceCosts& device, const Activations& kept) {
  const std::uint32_t d = of.point.sharers(), z = of.point.zero;
  const MemoryBound at_end{.parameters = share(device.parameters, z > 2 ? d : 1),
                           .gradients = share(device.gradients, z > 1 ? d : 1),
                           .states = of.point.keeps_states() ? share(device.states, z > 0 ? d : 1) : Bytes{},
                           .activations = {}};
  MemoryBound last = at_end, first = at_end, later = at_end;
  first.gradients = {};
  if (of.point.updates > 0) last.gradients = {};
  if (of.point.updates > 0 && !waits_for_gradients(of)) later.gradients = {};
  first.activations = kept.alone;
  later.activations = kept.beside_gradients;
  if (z > 2 && of.point.chunks == 1 && kept.are_before_backward) {
    first.exchanged = more_than_share(device.last_trained, d);
    if (later.activations > Bytes{}) later.exchanged = first.exchanged;
  }
  MemoryBound fullest = larger(larger(last, first), later);
  if (z > 1 && waits_for_gradients(of)) {
    later.activations = {};
    later.exchanged = more_than_share(device.largest_trained, d);
    fullest = larger(fullest, later);
  }
  return fullest;
}

/// What the fullest device needs wherever the model is cut.
class AnyCut {
 public:
  explicit AnyCut(const BoundedPoint& of) : of_(of), is_had_(of.costs.parameters.size()) {
    for (const RankStage& stage : of.costs.stages) stages_.push_back(alone(stage));
  }

  /// Of a line. The least room in which each device takes as many of the stages as it can, and none is left over. With
  /// less room than what the fullest has they would take others, and with less than what is next to be taken the same.
  MemoryBound of_line() const {
    Bytes low{};
    Taken best = taken_with(Bytes{std::numeric_limits<std::int64_t>::max()});
    while (low < best.fullest.total()) {
      const Taken taken = taken_with(Bytes{low.count + (best.fullest.total() - low).count / 2});
      if (taken.is_all) {
        best = taken;
      } else {
        low = taken.next;
      }
    }
    return best.fullest;
  }

  /// Of devices with several parts: the mean, with what one micro-batch leaves of all parts.
  MemoryBound mean() const {
    DeviceCosts whole{};
    for (const DeviceCosts& stage : stages_) add(whole, stage);
    const MemoryBound all = of_device(of_, whole, {stay(of_.point) ? left_by(whole, of_.point).all : Bytes{}, {}});
    const std::uint32_t p = of_.point.stages;
    return {.parameters = share(all.parameters, p),
            .gradients = share(all.gradients, p),
            .states = share(all.states, p),
            .activations = share(all.activations, p)};
  }

 private:
  /// A device with this stage alone, without what an earlier one may have brought.
  DeviceCosts alone(const RankStage& stage) {
    DeviceCosts made{};
    bool is_first = true;
    for (const std::uint32_t p : stage.parameters) {
      if (is_had_[p]) is_first = false;
      if (is_had_[p]) continue;
      is_had_[p] = true;
      made.parameters += of_.costs.parameters[p].bytes;
      made.states += of_.costs.parameters[p].states;
    }
    if (is_first) made.gradients = stage.gradients;
    made.saved = made.left_by_stage = stage.inner;
    return made;
  }

  static void add(DeviceCosts& device, const DeviceCosts& stage) {
    device.parameters += stage.parameters;
    device.states += stage.states;
    device.gradients += stage.gradients;
    device.saved += stage.saved;
    device.left_by_stage = std::max(device.left_by_stage, stage.left_by_stage);
  }

  /// What devices take within some room.
  struct Taken {
    MemoryBound fullest;  ///< what it needs
    Bytes next;           ///< the least room within which one of them takes more
    bool is_all;          ///< no stage is left over
  };

  Taken taken_with(Bytes room) const {
    MemoryBound fullest;
    Bytes next{std::numeric_limits<std::int64_t>::max()};
    std::size_t s = 0;
    for (std::uint32_t rank = 0; rank < of_.point.stages; ++rank) {
      DeviceCosts device{};
      MemoryBound needs;
      for (const std::size_t first = s; s < stages_.size(); ++s) {
        DeviceCosts more = device;
        add(more, stages_[s]);
        if (s > first) more.inputs += of_.costs.stages[s - 1].output;
        if (s > first) more.saved += of_.costs.stages[s - 1].output;
        const MemoryBound then = of_device(of_, more, activations(of_, more, rank));
        if (then.total() > room) {
          next = std::min(next, then.total());
          break;
        }
        device = more;
        needs = then;
      }
      fullest = larger(fullest, needs);
    }
    return {fullest, next, s == stages_.size()};
  }

  const BoundedPoint& of_;
  std::vector<bool> is_had_;  // by parameter
  std::vector<DeviceCosts> stages_;
};

}  // namespace

KeptInFlight kept_in_flight(const BoundedPoint& of, std::uint32_t rank) {
  const ClusterPoint& point = of.point;
  const bool is_line = point.stages == 1 || (point.way().shape == PipelineShape::line && !point.way().splits_backward);
  const bool are_moved_alone = point.offload > 0 && !point.offloads_by_stages() && point.has_fixed_saver();
  const bool are_made_again = point.offload == 0 && !point.has_fixed_saver() && !plans_ops(point);
  if (!is_line || !(are_moved_alone || are_made_again) || point.compression > 0 || !of.is_cut_known) return {};
  const DeviceCosts& device = of.devices[rank];
  const std::uint32_t m = of.micro_batches, p = point.stages;
  const std::uint32_t in_flight = p == 1 ? 1 : point.way().strategy == &gpipe_strategy ? m : std::min(m, p - rank);
  const Bytes left = times(in_flight, are_made_again ? device.saved : left_by(device, point).all);
  const MemoryBound without = of_device(of, device, {Bytes{}, Bytes{}, false});
  const Bytes at_rest = without.parameters + without.states;
  const Bytes gradients = waits_for_gradients(of) || point.updates == 0
                              ? share(device.gradients, point.zero > 1 ? point.sharers() : 1)
                              : Bytes{};
  return {at_rest + left, at_rest + left + gradients, in_flight};
}

Bytes states_beyond(const BoundedPoint& of, std::uint32_t rank) {
  if (!of.budget || of.point.keeps_states()) return {};
  const DeviceCosts& device = of.devices[rank];
  const Bytes own = share(device.states, of.point.zero > 0 ? of.point.sharers() : 1);
  const Bytes without = of_device(of, device, activations(of, device, rank)).total();
  return std::clamp(own + without - *of.budget, Bytes{}, own);
}

MemoryBound memory_bound(const BoundedPoint& of) {
  if (!of.is_cut_known) {
    const AnyCut any(of);
    return of.point.way().shape == PipelineShape::line ? any.of_line() : any.mean();
  }
  MemoryBound fullest;
  for (std::uint32_t rank = 0; rank < of.point.stages; ++rank) {
    const DeviceCosts& device = of.devices[rank];
    fullest = larger(fullest, of_device(of, device, activations(of, device, rank)));
  }
  return fullest;
}

}  // namespace plimsoll
