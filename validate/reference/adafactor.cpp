#include "validate/reference/adafactor.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "validate/reference/formulas.h"

namespace plimsoll::plain {
namespace {

constexpr float first_epsilon = std::numeric_limits<float>::epsilon(), second_epsilon = 1e-3F, clipping = 1;

double root_mean_square(const float* x, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += double{x[i]} * double{x[i]};
  return std::sqrt(sum / static_cast<double>(n));
}

/// w less the update, clipped to the root mean square 1 and as large as w is; with momentum, that of its updates.
void step(float* w, const float* update, float* momentum, std::int64_t n) {
  const double size = std::max(double{second_epsilon}, root_mean_square(w, n)) * double{learning_rate};
  const double clipped = std::max(1.0, root_mean_square(update, n) / double{clipping});
  const auto rate = static_cast<float>(size / clipped);
  for (std::int64_t i = 0; i < n; ++i) {
    float change = rate * update[i];
    if (momentum != nullptr) {
      momentum[i] = first_decay * momentum[i] + (1 - first_decay) * change;
      change = momentum[i];
    }
    w[i] -= change;
  }
}

float over_root(float g, float variance) {
  return g / std::sqrt(std::max(variance, first_epsilon * first_epsilon));
}

}  // namespace

// At step 1 the means of the squares take the place of what is kept: 1 - beta2 = 1^-0.8.
void adafactor(float* w, const float* g, float* row_variances, float* column_variances, float* momentum,
               Matrices matrices, float* scratch) {
  const auto [count, rows, columns] = matrices;
  for (std::int64_t k = 0; k < count; ++k) {
    const float* of = g + k * rows * columns;
    float *row = row_variances + k * rows, *column = column_variances + k * columns;
    std::fill_n(row, rows, 0.0F);
    std::fill_n(column, columns, 0.0F);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < columns; ++c) {
        const float square = of[r * columns + c] * of[r * columns + c];
        row[r] += square / static_cast<float>(columns);
        column[c] += square / static_cast<float>(rows);
      }
    }
    float mean = 0;
    for (std::int64_t r = 0; r < rows; ++r) mean += row[r] / static_cast<float>(rows);
    mean = std::max(mean, first_epsilon);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < columns; ++c) {
        const std::int64_t i = k * rows * columns + r * columns + c;
        scratch[i] = over_root(g[i], row[r] * column[c] / mean);
      }
    }
  }
  step(w, scratch, momentum, count * rows * columns);
}

void adafactor(float* w, const float* g, float* variances, float* momentum, std::int64_t n, float* scratch) {
  for (std::int64_t i = 0; i < n; ++i) {
    variances[i] = g[i] * g[i];
    scratch[i] = over_root(g[i], variances[i]);
  }
  step(w, scratch, momentum, n);
}

}  // namespace plimsoll::plain
