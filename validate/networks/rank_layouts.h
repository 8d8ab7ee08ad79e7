#pragma once
// Which bytes of a whole network's tensors each rank of a mesh has, tensor by tensor of the graph that its ranks run.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "sim/core/graph.h"
#include "sim/mesh/layout.h"

namespace plimsoll {

/// Of a tensor that the ranks of axes share out as one row of numbers (ZeRO): the rank at place i among them has its
/// bytes from i * each on.
struct SharedRange {
  std::vector<std::size_t> axes;  ///< the outermost first
  Bytes each;
};

/// How a tensor of a rank's graph lies in the whole.
struct RankLayout {
  Layout layout;                    ///< partial: every rank has a summand of all that the other axes leave
  std::vector<std::int64_t> shape;  ///< of the whole
  Bytes each_number;
  std::optional<SharedRange> range = {};  ///< of what the layout leaves
  std::vector<std::size_t> halved = {};   ///< axes whose ranks have two pieces of what they cut, one from either end

  Bytes whole_bytes() const;
  /// Of a rank, without a range.
  Bytes local_bytes(const Mesh&) const;
};

/// Bytes in a row, of a whole and of a rank's tensor.
struct RankPiece {
  std::int64_t whole = 0, own = 0, bytes = 0;
};

/// Of a rank, in the order in which it has them.
std::vector<RankPiece> pieces_of(const RankLayout&, const Mesh&, std::uint32_t rank);

/// Which indices of a dimension of the whole a rank has, without a range, in its own order.
std::vector<std::int64_t> indices_of(const RankLayout&, const Mesh&, std::uint32_t rank, std::size_t dim);

/// Of what the ranks of these axes have alike, as `own` is: the bytes of one's share, its last ones beyond the whole
/// left out. The whole is what the layout leaves without its range.
std::vector<RankPiece> range_of(Bytes whole, const SharedRange&, const Mesh&, std::uint32_t rank);

/// A rank's place along an axis.
std::uint32_t place_along(const Mesh&, std::size_t axis, std::uint32_t rank);

/// The ranks that differ from this one along these axes only, in their order.
std::vector<std::uint32_t> group_of(const Mesh&, const std::vector<std::size_t>& axes, std::uint32_t rank);

/// By tensor of the rank's graph, whose ops say how they are cut; the whole graph's ops have the same names. Or in one
/// sentence why that is not known.
std::variant<std::vector<RankLayout>, std::string> rank_layouts(const Graph& whole, const Graph& rank, const Mesh&);

}  // namespace plimsoll
