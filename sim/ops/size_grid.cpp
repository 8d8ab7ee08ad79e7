#include "sim/ops/size_grid.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "sim/core/expects.h"

namespace plimsoll {

namespace {

/// Of a positive number: its exponent of two.
std::uint64_t octave_of(double size) {
  constexpr int bits_of_fraction = 52;
  return std::bit_cast<std::uint64_t>(size) >> bits_of_fraction;
}

}  // namespace

SizeGrid::Octaves::Octaves(const std::vector<double>& sizes) : padded(sizes), first(octave_of(sizes.front())) {
  below.assign(octave_of(sizes.back()) - first + 2, 0);
  std::vector<std::size_t> in_octave(below.size());
  for (const double size : sizes) ++in_octave[octave_of(size) - first];
  for (std::size_t o = 1; o < below.size(); ++o) below[o] = below[o - 1] + in_octave[o - 1];
  most = *std::ranges::max_element(in_octave);
  padded.resize(sizes.size() + most, std::numeric_limits<double>::infinity());
}

std::size_t SizeGrid::Octaves::count_up_to(double size) const {
  const std::size_t octave = std::min<std::uint64_t>(octave_of(size) - first, below.size() - 1);
  const double* from = padded.data() + below[octave];
  std::size_t count = below[octave];
  for (std::size_t k = 0; k < most; ++k) count += from[k] <= size ? 1 : 0;
  return count;
}

SizeGrid::SizeGrid(std::vector<std::vector<double>> sizes, std::vector<double> values)
    : sizes_(std::move(sizes)), logarithms_(sizes_), values_(std::move(values)) {
  std::size_t points = 1;
  for (std::vector<double>& axis : logarithms_) {
    EXPECTS(!axis.empty() && axis.front() > 0 && std::ranges::is_sorted(axis, std::ranges::less_equal{}));
    points *= axis.size();
    octaves_.emplace_back(axis);
    for (double& size : axis) size = std::log(size);
  }
  EXPECTS(sizes_.size() <= most_axes && points == values_.size());
}

SizeGrid::Between SizeGrid::between(std::size_t a, double size) const {
  const std::vector<double>&known = sizes_[a], &axis = logarithms_[a];
  if (!(size >= known.front())) return {0, 0, 0};
  const std::size_t above = octaves_[a].count_up_to(size);
  if (above >= known.size()) return {known.size() - 1, known.size() - 1, 0};
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
