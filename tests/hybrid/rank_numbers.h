#pragma once
// What graphs compute, by numbers: an op with a loop is the sum over the dimensions that its output lacks of the
// products of its inputs. Of a dimension that one operand alone has, and of several numbers in a row for one place, the
// sum counts, or all are the same. An output that is whole where a dimension is cut has nothing of the inputs with that
// dimension. Whole, and on every rank of a mesh with collectives between them.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sim/core/graph.h"
#include "sim/core/mesh.h"

namespace plimsoll {

/// Numbers modulo a prime, row by row.
struct NumberArray {
  std::vector<std::int64_t> shape;
  std::vector<std::uint64_t> numbers;

  friend bool operator==(const NumberArray&, const NumberArray&) = default;
};

/// By tensor; `given` has those that no op makes.
std::map<TensorId, NumberArray> computed(const Graph&, const std::map<TensorId, NumberArray>& given);

/// By rank and tensor: of a graph of one rank, from the whole values of what is given, of which a rank takes the share
/// that its shape tells (every factor is one axis's ranks, or all of them).
std::vector<std::map<TensorId, NumberArray>> computed_on_ranks(const Graph& rank_graph, const Mesh&,
                                                               const std::map<TensorId, NumberArray>& given);

/// A rank's share of the whole, of that shape.
NumberArray share_of(const NumberArray& whole, const std::vector<std::int64_t>& shape, const Mesh&, std::uint32_t rank);

/// The same every time.
NumberArray random_numbers(std::vector<std::int64_t> shape, std::uint64_t seed);

}  // namespace plimsoll
