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

SizeGrid::Between SizeGrid::between(std::size_t a, double size) const {
  const std::vector<double>&known = sizes_[a], &axis = logarithms_[a];
  std::size_t above = 0;  // counted: a search among a dozen takes longer, since nobody foresees its turns
  for (const double each : known) above += each <= size ? 1 : 0;
  if (above == 0) return {0, 0, 0};
  if (above == known.size()) return {above - 1, above - 1, 0};
  const std::size_t low = above - 1;
  const double part = (std::log(size) - axis[low]) / (axis[above] - axis[low]);
  return {low, above, std::clamp(part, 0.0, 1.0)};
}

GridShares SizeGrid::shares(std::span<const double> sizes) const {
  EXPECTS(sizes.size() == sizes_.size());
  GridShares shares{.count = 1};
  shares.weights[0] = 1;
  for (std::size_t a = 0; a < sizes.size(); ++a) {
    const std::size_t length = sizes_[a].size();
    const auto [low, high, part] = between(a, sizes[a]);
    for (std::size_t c = shares.count; c-- > 0;) {
      const std::size_t before = shares.points[c] * length;
      shares.points[2 * c] = before + low;
      shares.points[2 * c + 1] = before + high;
      shares.weights[2 * c + 1] = shares.weights[c] * part;
      shares.weights[2 * c] = shares.weights[c] * (1 - part);
    }
    shares.count *= 2;
  }
  return shares;
}

template <std::size_t axes>
double SizeGrid::at_axes(std::span<const double> sizes) const {
  std::array<std::size_t, 1U << axes> points{};
  std::array<double, axes> parts;
  for (std::size_t a = 0, count = 1; a < axes; ++a, count *= 2) {
    const auto [low, high, part] = between(a, sizes[a]);
    const std::size_t length = sizes_[a].size();
    parts[a] = part;
    for (std::size_t c = count; c-- > 0;) {
      points[2 * c + 1] = points[c] * length + high;
      points[2 * c] = points[c] * length + low;
    }
  }
  std::array<double, 1U << axes> values;
  for (std::size_t c = 0; c < values.size(); ++c) values[c] = values_[points[c]];
  for (std::size_t a = axes, count = values.size(); a-- > 0;) {  // the last axis' two ends lie beside each other
    count /= 2;
    for (std::size_t c = 0; c < count; ++c) {
      values[c] = values[2 * c] + parts[a] * (values[2 * c + 1] - values[2 * c]);
    }
  }
  return values[0];
}

double SizeGrid::at(std::span<const double> sizes) const {
  EXPECTS(sizes.size() == sizes_.size());
  switch (sizes.size()) {
    case 1:
      return at_axes<1>(sizes);
    case 2:
      return at_axes<2>(sizes);
    default:
      static_assert(most_axes == 3);
      return at_axes<3>(sizes);
  }
}

bool SizeGrid::is_outside(std::span<const double> sizes) const {
  for (std::size_t a = 0; a < sizes.size(); ++a) {
    if (sizes[a] < sizes_[a].front() || sizes[a] > sizes_[a].back()) return true;
  }
  return false;
}

}  // namespace plimsoll
