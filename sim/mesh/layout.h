#pragma once
// How a tensor lies on the ranks of a mesh, and what it takes to lay it out anew.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/core/mesh.h"
#include "sim/core/schedule.h"
#include "sim/ops/op_loop.h"

namespace plimsoll {

/// Along one axis of the mesh.
struct AxisLayout {
  enum class Kind : std::uint8_t {
    whole,    ///< every rank has all of it
    cut,      ///< every rank has an equal share of dimension `dim`
    partial,  ///< every rank has a summand of it
  };
  Kind kind = Kind::whole;
  std::uint8_t dim = 0;  ///< of the tensor's shape; 0 unless cut

  friend constexpr auto operator<=>(const AxisLayout&, const AxisLayout&) = default;
};

/// By axis of the mesh. A dimension may be cut along several axes.
using Layout = std::vector<AxisLayout>;

/// How every op is cut: by op and axis of the mesh, which dimension of its loop is shared out among the ranks; unset:
/// every rank of the axis does the same.
struct SplitPlan {
  Mesh mesh;
  std::vector<std::vector<std::optional<std::uint8_t>>> cuts;
  /// Likewise, of ops that run in blocks (ring_blocks.h): the dimension whose shares go round. Empty: of no op.
  std::vector<std::vector<std::optional<std::uint8_t>>> around = {};
};

/// The layout that an op cut so reads an input in, or makes an output in: dims of the operand, as in OpLoop.
Layout layout_of(std::span<const std::uint8_t> operand, std::span<const std::optional<std::uint8_t>> cuts,
                 bool is_output);

/// Of an output, which some cuts leave whole.
Layout layout_of_output(const OpLoop&, std::size_t output, std::vector<std::optional<std::uint8_t>> cuts);

/// The shape that a rank has of the tensor. Every dimension must be divisible by the ranks that it is cut for.
std::vector<std::int64_t> local_shape(std::vector<std::int64_t>, const Layout&, const Mesh&);

/// One step of laying a tensor out anew, along one axis.
struct Relayout {
  std::uint32_t axis = 0;
  std::optional<CollectiveKind> kind;  ///< unset: a rank takes its share of what it has (whole to cut)
  AxisLayout to;
};

/// Steps of one kind along several axes, which a group over all of them takes at once.
struct JointRelayout {
  std::vector<std::uint32_t> axes;     ///< ascending
  std::optional<CollectiveKind> kind;  ///< as Relayout's
  Layout after;
};

/// As relayouts, with steps of one kind that follow each other put together: sums, and shares of one dimension that are
/// gathered, taken, or exchanged for those of another one.
std::optional<std::vector<JointRelayout>> joint_relayouts(const Layout& from, const Layout& to);

/// The steps from one layout to another, or nothing where there is no way (a partial sum is never made of values).
/// Partial sums are reduced first, by a reduce_scatter where they end cut along a dimension, else an all_reduce; then
/// what is cut is gathered or, where another dimension is cut, exchanged (all_to_all); then shares are taken. Exchanges
/// of one dimension that follow each other are shares in the end only, when all of them are made.
std::optional<std::vector<Relayout>> relayouts(const Layout& from, const Layout& to);

}  // namespace plimsoll
