#pragma once
// Asynchronous tensor parallelism: a product runs in blocks of positions, one for each rank, while the next block of
// what it gathers, or of what it scatters, goes round.
// Source: Wang et al., "Overlap Communication with Dependent Computation via Decomposition in Large Deep Learning
// Models", ASPLOS 2023; PyTorch's async tensor parallelism does likewise.

#include <string_view>

#include "sim/core/graph.h"
#include "sim/core/mesh.h"

namespace plimsoll {

/// Which operand of a block's product is a part of what the op names: `input`, the first one, or `output`, all of them;
/// and of how many parts it is one (sim/ops/efficiency.h).
inline constexpr const char *sliced_operand_key = "sliced", *slice_count_key = "sliced_in";
/// Which of them it is or, of a sum, has been added last, over the ranks of which axis, and of which op they all are.
inline constexpr const char *sliced_part_key = "sliced_part", *sliced_axis_key = "sliced_over",
                            *sliced_of_key = "sliced_of";

/// A rank's graph with n products, of 1/n of the work each, in place of
///  - a product whose input an all_gather over the axis has made: with the rank's own share first, then with those that
///    come by n - 1 shifts. Other readers of what was gathered read its blocks.
///  - a product whose result a reduce_scatter over the axis sums: the share of the farthest rank first. What comes is
///    added, and handed on: n - 1 shifts, and as many sums.
/// A product that would be both is only the first. All else stays, such as all_reduces.
Graph with_asynchronous_products(Graph, const Mesh&, std::string_view axis);

}  // namespace plimsoll
