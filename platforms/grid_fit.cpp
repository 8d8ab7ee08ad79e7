#include "platforms/grid_fit.h"

#include <cmath>
#include <cstddef>

namespace plimsoll {
namespace {

/// A row of the system: what it sums of the unknowns, and what that should be.
struct FitRow {
  GridShares of;
  double value = 0;
};

double sum_of(const FitRow& row, std::span<const double> unknowns) {
  double sum = 0;
  for (std::size_t c = 0; c < row.of.count; ++c) sum += row.of.weights[c] * unknowns[row.of.points[c]];
  return sum;
}

/// Adds `factor` times what each row sums to the unknowns that it sums.
std::vector<double> transposed(std::span<const FitRow> rows, std::span<const double> factors, std::size_t unknowns) {
  std::vector<double> sums(unknowns);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (std::size_t c = 0; c < rows[r].of.count; ++c) sums[rows[r].of.points[c]] += rows[r].of.weights[c] * factors[r];
  }
  return sums;
}

double product(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// That a value of the grid lies in the middle between its two neighbours, along each axis.
void add_smoothness(const std::vector<std::vector<double>>& sizes, double weight, std::vector<FitRow>& rows) {
  std::size_t step = 1, points = 1;
  for (const std::vector<double>& axis : sizes) points *= axis.size();
  for (std::size_t a = sizes.size(); a-- > 0;) {
    const std::size_t length = sizes[a].size();
    for (std::size_t point = 0; point < points; ++point) {
      const std::size_t along = point / step % length;
      if (along == 0 || along + 1 == length) continue;
      const double below = std::log(sizes[a][along] / sizes[a][along - 1]);
      const double above = std::log(sizes[a][along + 1] / sizes[a][along]);
      FitRow row{.of = {.count = 3}};
      row.of.points = {point - step, point, point + step};
      row.of.weights = {weight * above / (below + above), -weight, weight * below / (below + above)};
      rows.push_back(row);
    }
    step *= length;
  }
}

}  // namespace

SizeGrid fitted_grid(const std::vector<std::vector<double>>& sizes, std::span<const GridSample> samples) {
  constexpr double smoothness = 0.3;
  constexpr int steps = 300;
  std::size_t points = 1;
  for (const std::vector<double>& axis : sizes) points *= axis.size();
  const SizeGrid shape(sizes, std::vector<double>(points));
  std::vector<FitRow> rows;
  double mean = 0;
  for (const GridSample& sample : samples) {
    rows.push_back({shape.shares(sample.sizes), sample.value});
    mean += sample.value / static_cast<double>(samples.size());
  }
  add_smoothness(sizes, smoothness, rows);

  std::vector<double> unknowns(points, mean), residuals;
  for (const FitRow& row : rows) residuals.push_back(row.value - sum_of(row, unknowns));
  std::vector<double> gradient = transposed(rows, residuals, points), direction = gradient;
  double length = product(gradient, gradient);
  const double enough = 1e-20 * length;
  for (int step = 0; step < steps && length > enough; ++step) {
    std::vector<double> along;
    for (const FitRow& row : rows) along.push_back(sum_of(row, direction));
    const double distance = length / product(along, along);
    for (std::size_t i = 0; i < points; ++i) unknowns[i] += distance * direction[i];
    for (std::size_t r = 0; r < rows.size(); ++r) residuals[r] -= distance * along[r];
    gradient = transposed(rows, residuals, points);
    const double next = product(gradient, gradient);
    for (std::size_t i = 0; i < points; ++i) direction[i] = gradient[i] + next / length * direction[i];
    length = next;
  }
  return SizeGrid(sizes, std::move(unknowns));
}

}  // namespace plimsoll
