#pragma once
// A grid of all sizes that were measured, for tables that keep every row.

#include <span>
#include <vector>

#include "sim/ops/size_grid.h"

namespace plimsoll {

/// A number measured at some sizes.
struct GridSample {
  std::vector<double> sizes;  ///< one for each axis
  double value = 0;
};

/// All sizes of the samples, ascending, axis by axis.
std::vector<std::vector<double>> sizes_of(std::span<const GridSample>);

/// Of several samples of the same sizes their mean. A combination without a sample, a hole, takes the mean of the
/// interpolations between its nearest neighbours along each of the last two axes, linear in the logarithms of sizes.
/// Each counts by one over the product of its two distances, to which its error is proportional. Where the hole has
/// neighbours on both sides along neither axis, it takes the nearest sample that differs from it along these alone.
SizeGrid full_grid(std::span<const GridSample>);

}  // namespace plimsoll
