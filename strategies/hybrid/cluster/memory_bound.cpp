// What the fullest device of a point keeps at least.
//
// Static: a rank of d replicas has at least 1/d of what they share out (shares are rounded up), and all of the rest:
// parameters P and states S from the beginning to the end, gradients G at the end of the backward. With z = 3 a device
// of one part has gathered its last stage's parameters when the backward begins.
//
// Activations: A bytes are what one micro-batch leaves of a device's parts for its backward, as far as the saver has
// to keep it. Before the first backward of a rank r of p with m micro-batches so many are there:
//   1f1b, zb_h1: min(m, p - r) forwards come first, by the order of its turns.
//   gpipe: m.
//   interleaved: min(m v, (v - 1) g + 2 (p - r - 1) + 1) forwards of parts, in groups of g micro-batches; each keeps at
//     least what the smallest part keeps.
//   V: when the last part's backward of a micro-batch begins, all parts have kept what it left. Of
//     dualpipe_v and v_half, whose few orders are the same for all costs, the fewest forwards of parts of any.
// Without a pipeline it is one micro-batch. full_recompute keeps what enters the stages; in a backward a stage has run
// again, and what it leaves is there beside what enters the stages of its part up to it.
//
// Both: from the second backward on, the gradients are there too. Before the second backward of a line
// min(m - 1, p - r) micro-batches are in flight. With split backwards weight gradients lag behind by at most p
// micro-batches: with 2 p of them or more some are made before the last forward, at which p - r are in flight.

#include <algorithm>

#include "strategies/hybrid/cluster/bounds.h"
#include "strategies/list.h"
#include "strategies/pipelining/orders/orders.h"
#include "strategies/pipelining/orders/v_slots.h"

namespace plimsoll {
namespace {

Bytes share(Bytes whole, std::uint32_t ranks) {
  return Bytes{whole.count / ranks};
}

Bytes times(std::uint32_t count, Bytes bytes) {
  return Bytes{bytes.count * count};
}

/// What one micro-batch leaves at least: of all parts of a device, and of the smallest; and once more than that while a
/// backward runs.
struct Left {
  Bytes all, smallest, more;
};

Left left_by(const DeviceCosts& device, const ClusterSaver& saver) {
  if (saver.behind == nullptr) return {device.saved, device.least_saved, {}};
  if (saver.behind == &full_recompute_strategy) {
    return {device.inputs, device.least_inputs, std::max(device.at_repeat - device.inputs, Bytes{})};
  }
  return {};
}

/// Activations before the first backward of a rank, and those beside which its gradients are.
struct Activations {
  Bytes alone, beside_gradients;
};

/// Of a fixed order: forwards of parts on a rank whose backwards have not begun, at most.
std::uint32_t forwards_kept(const std::vector<Turn>& turns) {
  std::uint32_t kept = 0, most = 0;
  for (const Turn& turn : turns) {
    if (turn.piece == piece::forward) most = std::max(most, ++kept);
    if (turn.piece == piece::backward) --kept;
  }
  return most;
}

Activations activations(const BoundedPoint& of, std::uint32_t rank) {
  const ClusterSchedule& way = of.point.way();
  const std::uint32_t p = of.point.stages, m = of.micro_batches, v = of.point.chunks;
  const Left left = left_by(of.devices[rank], of.point.saving());
  if (way.strategy == nullptr) return {left.all + left.more, m > 1 ? left.all + left.more : Bytes{}};
  if (way.shape == PipelineShape::v) {
    return {std::max(times(of.parts_kept.empty() ? 1 : of.parts_kept[rank], left.smallest), left.all), {}};
  }
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

MemoryBound of_rank(const BoundedPoint& of, std::uint32_t rank) {
  const DeviceCosts& device = of.devices[rank];
  const std::uint32_t d = of.point.replicas, z = of.point.zero;
  const Activations kept = activations(of, rank);
  const MemoryBound at_end{.parameters = share(device.parameters, z > 2 ? d : 1),
                           .gradients = share(device.gradients, z > 1 ? d : 1),
                           .states = share(device.states, z > 0 ? d : 1),
                           .activations = {}};
  MemoryBound first = at_end, later = at_end;
  first.gradients = {};
  first.activations = kept.alone;
  later.activations = kept.beside_gradients;
  if (z > 2 && of.point.chunks == 1) {
    const Bytes gathered = std::max(device.last_trained - share(device.last_trained, d) - Bytes{1}, Bytes{});
    first.parameters += gathered;
    if (later.activations > Bytes{}) later.parameters += gathered;
  }
  return std::max({at_end, first, later},
                  [](const MemoryBound& a, const MemoryBound& b) { return a.total() < b.total(); });
}

}  // namespace

std::vector<std::uint32_t> forwards_kept(const ClusterPoint& point, std::uint32_t micro_batches) {
  std::vector<PipelineOrder> orders;
  if (point.way().strategy == &dualpipe_v_strategy) {
    orders.push_back(dualpipe_v_order(point.stages, micro_batches));
  } else if (point.way().strategy == &v_half_strategy) {
    orders = orders_beside_published(v_half_block(point.stages), micro_batches);
  }
  std::vector<std::uint32_t> least;
  for (const PipelineOrder& order : orders) {
    const bool is_first = least.empty();
    least.resize(order.turns.size());
    for (std::size_t r = 0; r < least.size(); ++r) {
      const std::uint32_t kept = forwards_kept(order.turns[r]);
      least[r] = is_first ? kept : std::min(least[r], kept);
    }
  }
  return least;
}

MemoryBound memory_bound(const BoundedPoint& of) {
  MemoryBound fullest;
  for (std::uint32_t rank = 0; rank < of.point.stages; ++rank) {
    const MemoryBound own = of_rank(of, rank);
    if (own.total() > fullest.total()) fullest = own;
  }
  return fullest;
}

}  // namespace plimsoll
