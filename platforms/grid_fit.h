#pragma once
// A grid of few numbers that is as near to many measured ones as it can be.

#include <span>
#include <vector>

#include "sim/core/size_grid.h"

namespace plimsoll {

struct GridSample {
  std::vector<double> sizes;  ///< one for each axis
  double value = 0;
};

/// Least squares. Where no sample lies around a point of the grid, it continues what its neighbours say: second
/// differences count a little, too. By conjugate gradients, always as many steps.
SizeGrid fitted_grid(const std::vector<std::vector<double>>& sizes, std::span<const GridSample>);

}  // namespace plimsoll
