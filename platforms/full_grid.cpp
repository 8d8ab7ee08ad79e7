#include "platforms/full_grid.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

namespace plimsoll {
namespace {

/// Means of samples by point of the grid, and what its holes take.
class Grid {
 public:
  explicit Grid(std::span<const GridSample> samples) : sizes_(sizes_of(samples)) {
    std::size_t points = 1;
    for (std::size_t a = sizes_.size(); a-- > 0;) {
      steps_.insert(steps_.begin(), points);
      points *= sizes_[a].size();
    }
    sums_.resize(points);
    counts_.resize(points);
    for (const GridSample& sample : samples) {
      const std::size_t point = point_of(sample.sizes);
      sums_[point] += sample.value;
      ++counts_[point];
    }
  }

  SizeGrid filled() && {
    std::vector<double> values(sums_.size());
    for (std::size_t p = 0; p < values.size(); ++p) values[p] = counts_[p] > 0 ? mean(p) : hole(p);
    return SizeGrid(std::move(sizes_), std::move(values));
  }

 private:
  std::size_t point_of(std::span<const double> sizes) const {
    std::size_t point = 0;
    for (std::size_t a = 0; a < sizes.size(); ++a) {
      const auto place = std::ranges::lower_bound(sizes_[a], sizes[a]) - sizes_[a].begin();
      point += steps_[a] * static_cast<std::size_t>(place);
    }
    return point;
  }

  double mean(std::size_t point) const { return sums_[point] / counts_[point]; }

  std::size_t first_axis() const { return sizes_.size() - std::min<std::size_t>(sizes_.size(), 2); }

  std::size_t place_along(std::size_t axis, std::size_t point) const {
    return point / steps_[axis] % sizes_[axis].size();
  }

  double hole(std::size_t point) const {
    double sum = 0, weights = 0;
    for (std::size_t a = first_axis(); a < sizes_.size(); ++a) {
      const std::optional<Line> line = between_neighbours(a, point);
      if (!line) continue;
      sum += line->weight * line->value;
      weights += line->weight;
    }
    return weights > 0 ? sum / weights : nearest(point);
  }

  struct Line {
    double value = 0, weight = 0;
  };
  std::optional<Line> between_neighbours(std::size_t axis, std::size_t point) const {
    const std::size_t at = place_along(axis, point), step = steps_[axis], first = point - at * step;
    std::optional<std::size_t> below, above;
    for (std::size_t i = 0; i < sizes_[axis].size(); ++i) {
      if (counts_[first + i * step] == 0) continue;
      if (i < at) below = i;
      if (i > at && !above) above = i;
    }
    if (!below || !above) return std::nullopt;
    const auto distance = [&](std::size_t i) { return std::log(sizes_[axis][i] / sizes_[axis][*below]); };
    const double low = mean(first + *below * step), high = mean(first + *above * step);
    const double before = distance(at), behind = distance(*above) - before;
    return Line{std::lerp(low, high, before / (before + behind)), 1 / (before * behind)};
  }

  /// Sizes of the first axes are those of samples: so some sample differs along the others alone.
  double nearest(std::size_t point) const {
    double least = std::numeric_limits<double>::infinity(), value = 0;
    const std::size_t plane = first_axis() == 0 ? sums_.size() : steps_[first_axis() - 1];
    const std::size_t first = point / plane * plane;
    for (std::size_t p = first; p < first + plane; ++p) {
      double distance = 0;
      for (std::size_t a = first_axis(); a < sizes_.size(); ++a) {
        const std::vector<double>& sizes = sizes_[a];
        distance += std::pow(std::log(sizes[place_along(a, p)] / sizes[place_along(a, point)]), 2);
      }
      if (counts_[p] == 0 || distance >= least) continue;
      least = distance;
      value = mean(p);
    }
    return value;
  }

  std::vector<std::vector<double>> sizes_;
  std::vector<std::size_t> steps_;  ///< from a point to the next one along each axis
  std::vector<double> sums_, counts_;
};

}  // namespace

std::vector<std::vector<double>> sizes_of(std::span<const GridSample> samples) {
  std::vector<std::vector<double>> sizes(samples.empty() ? 0 : samples.front().sizes.size());
  for (std::size_t a = 0; a < sizes.size(); ++a) {
    for (const GridSample& sample : samples) sizes[a].push_back(sample.sizes[a]);
    std::ranges::sort(sizes[a]);
    sizes[a].erase(std::unique(sizes[a].begin(), sizes[a].end()), sizes[a].end());
  }
  return sizes;
}

SizeGrid full_grid(std::span<const GridSample> samples) {
  return Grid(samples).filled();
}

}  // namespace plimsoll
