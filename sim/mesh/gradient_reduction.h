#pragma once
// Ranks of an axis that train one model together: what they sum, share out and gather around the updates.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "sim/core/graph.h"
#include "sim/core/mesh.h"
#include "sim/core/schedule.h"

namespace plimsoll {

/// One parameter gradient that is summed over the ranks of an axis before it is used, in place.
struct GradientSum {
  TensorId gradient;
  std::string axis;
  CollectiveKind kind = CollectiveKind::all_reduce;  ///< reduce_scatter: a rank ends with the sum of its share
  bool overlaps = true;                              ///< beside what the device computes; else it computes nothing
};

/// The graph with these sums before its updates, beside what the device computes. What comes at the end of an iteration
/// is in the order in which the backward completes gradients: sums, then updates, then gathers of parameters. Gradients
/// of one stage alone that are complete one after the other are summed together until they have the bytes of a bucket;
/// 0: each alone. Where buckets are copies, each sum has a buffer of its own for the gradients that it sums, all the
/// time.
Graph with_gradient_sums(Graph, const std::vector<GradientSum>&, Bytes bucket = {}, bool buckets_are_copies = false);

/// What of a parameter each rank of the axis has a share of only (ZeRO 1 to 3).
enum class Sharded : std::uint8_t { nothing, states, gradients, parameters };

/// What each of so many ranks has of a tensor that they share out: equal shares, rounded up to whole numbers.
Bytes shared_bytes(const Tensor&, std::uint32_t ranks);

struct Together {
  Sharded sharded = Sharded::nothing;
  bool are_summed = false;     ///< gradients are shares, summed already
  std::uint32_t prefetch = 1;  ///< of parameters: so many stages ahead
  bool reshards = true;        ///< parameters: whole ones go after a stage's forward; else they stay for its backward
  /// Parameters: the axis, one of those that share out, over which shares stay from a stage's forward to its backward.
  std::optional<Axis> kept_over = {};
  Bytes bucket = {};     ///< of gradients that are summed at the end
  bool overlaps = true;  ///< whether a device goes on computing while these are summed, and parameters handed out
  bool buckets_are_copies = false;
  std::vector<TensorId> unlike = {};  ///< gradients of parameters that each rank has others of: nobody sums them
};

/// The graph of one rank, where each rank of the axis has its own micro-batches. Shares are equal, rounded
/// up (shared_bytes).
///  - nothing: gradients are summed (all_reduce), everyone updates all.
///  - states: gradients are summed, each rank those of its share (reduce_scatter), updates it and hands it out
///    (all_gather). Gradient and parameter are whole.
///  - gradients: likewise, but summed for every micro-batch behind the op that makes them, so that only shares stay.
///  - parameters: whole only while a stage's ops of one phase run, or from its forward to its backward; gathered
///    `prefetch` stages ahead, beside what the device computes. With `kept_over` shares over that axis stay from the
///    forward to the backward, which gathers these.
/// Or in one sentence why there is none.
std::variant<Graph, std::string> trained_together(Graph, const Axis&, const Together&);

}  // namespace plimsoll
