#include "sim/ops/size_grid.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/core/expects.h"

namespace plimsoll {

SizeGrid::SizeGrid(std::vector<std::vector<double>> sizes, std::vector<double> values)
    : sizes_(std::move(sizes)), logarithms_(sizes_), values_(std::move(values)) {
  std::size_t points = 1;
  for (std::vector<double>& axis : logarithms_) {
    EXPECTS(!axis.empty() && axis.front() > 0 && std::ranges::is_sorted(axis, std::ranges::less_equal{}));
    points *= axis.size();
    for (double& size : axis) size = std::log(size);
  }
  EXPECTS(sizes_.size() <= most_axes && points == values_.size());
}

GridShares SizeGrid::shares(std::span<const double> sizes) const {
  EXPECTS(sizes.size() == sizes_.size());
  GridShares shares{.count = 1};
  shares.weights[0] = 1;
  for (std::size_t a = 0; a < sizes.size(); ++a) {
    const std::vector<double>& axis = logarithms_[a];
    const double size = std::log(sizes[a]);
    const auto above = static_cast<std::size_t>(std::ranges::upper_bound(axis, size) - axis.begin());
    const std::size_t low = std::min(above > 0 ? above - 1 : 0, axis.size() - 1);
    const std::size_t high = std::min(low + 1, axis.size() - 1);
    const double width = axis[high] - axis[low];
    const double part = width > 0 ? std::clamp((size - axis[low]) / width, 0.0, 1.0) : 0;
    for (std::size_t c = shares.count; c-- > 0;) {
      const std::size_t before = shares.points[c] * axis.size();
      shares.points[2 * c] = before + low;
      shares.points[2 * c + 1] = before + high;
      shares.weights[2 * c + 1] = shares.weights[c] * part;
      shares.weights[2 * c] = shares.weights[c] * (1 - part);
    }
    shares.count *= 2;
  }
  return shares;
}

double SizeGrid::at(std::span<const double> sizes) const {
  const GridShares around = shares(sizes);
  double value = 0;
  for (std::size_t c = 0; c < around.count; ++c) value += around.weights[c] * values_[around.points[c]];
  return value;
}

bool SizeGrid::is_outside(std::span<const double> sizes) const {
  for (std::size_t a = 0; a < sizes.size(); ++a) {
    if (sizes[a] < sizes_[a].front() || sizes[a] > sizes_[a].back()) return true;
  }
  return false;
}

}  // namespace plimsoll
