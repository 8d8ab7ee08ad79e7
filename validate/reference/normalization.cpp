#include "validate/reference/normalization.h"

#include <algorithm>
#include <cmath>

#include "validate/reference/formulas.h"

namespace plimsoll::plain {
namespace {

float inverse_deviation(float variance) {
  return 1.0F / std::sqrt(variance + norm_epsilon);
}

/// dx = scale / deviation (dy - mean of dy - normal x times the mean of (dy normal x)), over what was normalised
/// together; for layer norm the scale is inside the means.
float input_gradient(float x, float g, float mean, float inverse, double sum, double dot, std::int64_t n) {
  const float normal = (x - mean) * inverse;
  const auto share = static_cast<double>(n);
  return inverse * (g - static_cast<float>(sum / share) - normal * static_cast<float>(dot / share));
}

template <class Number>
void statistics_of_rows(const Number* x, RowSizes s, float* mean, float* variance) {
  const auto columns = static_cast<double>(s.columns);
  for (std::int64_t r = 0; r < s.rows; ++r) {
    const Number* row = x + r * s.columns;
    double sum = 0, squares = 0;
    for (std::int64_t c = 0; c < s.columns; ++c) sum += as_float(row[c]);
    mean[r] = static_cast<float>(sum / columns);
    for (std::int64_t c = 0; c < s.columns; ++c) {
      const double d = as_float(row[c]) - mean[r];
      squares += d * d;
    }
    variance[r] = static_cast<float>(squares / columns);
  }
}

template <class Number>
void weight_gradient_of_rows(const Number* x, const Number* dy, RowSizes s, const float* mean, const float* variance,
                             float* dscale, float* dshift) {
  std::fill_n(dscale, s.columns, 0.0F);
  std::fill_n(dshift, s.columns, 0.0F);
  for (std::int64_t r = 0; r < s.rows; ++r) {
    const Number *row = x + r * s.columns, *gradient = dy + r * s.columns;
    const float inverse = inverse_deviation(variance[r]);
    for (std::int64_t c = 0; c < s.columns; ++c) {
      dscale[c] += (as_float(row[c]) - mean[r]) * inverse * as_float(gradient[c]);
      dshift[c] += as_float(gradient[c]);
    }
  }
}

}  // namespace

void column_statistics(const float* x, RowSizes s, double* sums, float* mean, float* variance) {
  const auto rows = static_cast<double>(s.rows);
  std::fill_n(sums, s.columns, 0.0);
  for (std::int64_t r = 0; r < s.rows; ++r) {
    for (std::int64_t c = 0; c < s.columns; ++c) sums[c] += x[r * s.columns + c];
  }
  for (std::int64_t c = 0; c < s.columns; ++c) {
    mean[c] = static_cast<float>(sums[c] / rows);
    sums[c] = 0;
  }
  for (std::int64_t r = 0; r < s.rows; ++r) {
    for (std::int64_t c = 0; c < s.columns; ++c) {
      const double d = x[r * s.columns + c] - mean[c];
      sums[c] += d * d;
    }
  }
  for (std::int64_t c = 0; c < s.columns; ++c) variance[c] = static_cast<float>(sums[c] / rows);
}

void row_statistics(const float* x, RowSizes s, float* mean, float* variance) {
  statistics_of_rows(x, s, mean, variance);
}

void row_statistics(const Bf16* x, RowSizes s, float* mean, float* variance) {
  statistics_of_rows(x, s, mean, variance);
}

void move_statistics(float* running, const float* mean, const float* variance, std::int64_t columns) {
  for (std::int64_t c = 0; c < columns; ++c) {
    running[c] += running_share * (mean[c] - running[c]);
    running[columns + c] += running_share * (variance[c] - running[columns + c]);
  }
}

void batch_norm(const float* x, const float* scale, const float* shift, RowSizes s, const float* mean,
                const float* variance, float* y) {
  for (std::int64_t i = 0; i < s.rows * s.columns; ++i) {
    const std::int64_t c = i % s.columns;
    y[i] = (x[i] - mean[c]) * inverse_deviation(variance[c]) * scale[c] + shift[c];
  }
}

void layer_norm(const float* x, const float* scale, const float* shift, RowSizes s, const float* mean,
                const float* variance, float* y) {
  for (std::int64_t i = 0; i < s.rows * s.columns; ++i) {
    const std::int64_t r = i / s.columns, c = i % s.columns;
    y[i] = (x[i] - mean[r]) * inverse_deviation(variance[r]) * scale[c] + shift[c];
  }
}

void batch_norm_input_gradient(const float* x, const float* scale, const float* dy, RowSizes s, const float* mean,
                               const float* variance, float* dx) {
  for (std::int64_t c = 0; c < s.columns; ++c) {
    const float inverse = inverse_deviation(variance[c]);
    double sum = 0, dot = 0;
    for (std::int64_t i = c; i < s.rows * s.columns; i += s.columns) {
      sum += dy[i];
      dot += dy[i] * (x[i] - mean[c]) * inverse;
    }
    for (std::int64_t i = c; i < s.rows * s.columns; i += s.columns) {
      dx[i] = scale[c] * input_gradient(x[i], dy[i], mean[c], inverse, sum, dot, s.rows);
    }
  }
}

void layer_norm_input_gradient(const float* x, const float* scale, const float* dy, RowSizes s, const float* mean,
                               const float* variance, float* dx) {
  for (std::int64_t r = 0; r < s.rows; ++r) {
    const float inverse = inverse_deviation(variance[r]);
    const std::int64_t first = r * s.columns;
    double sum = 0, dot = 0;
    for (std::int64_t c = 0; c < s.columns; ++c) {
      const float g = dy[first + c] * scale[c];
      sum += g;
      dot += g * (x[first + c] - mean[r]) * inverse;
    }
    for (std::int64_t c = 0; c < s.columns; ++c) {
      const std::int64_t i = first + c;
      dx[i] = input_gradient(x[i], dy[i] * scale[c], mean[r], inverse, sum, dot, s.columns);
    }
  }
}

void batch_norm_weight_gradient(const float* x, const float* dy, RowSizes s, const float* mean, const float* variance,
                                float* dscale, float* dshift) {
  std::fill_n(dscale, s.columns, 0.0F);
  std::fill_n(dshift, s.columns, 0.0F);
  for (std::int64_t r = 0; r < s.rows; ++r) {
    const float *row = x + r * s.columns, *gradient = dy + r * s.columns;
    for (std::int64_t c = 0; c < s.columns; ++c) {
      dscale[c] += (row[c] - mean[c]) * gradient[c];
      dshift[c] += gradient[c];
    }
  }
  for (std::int64_t c = 0; c < s.columns; ++c) dscale[c] /= std::sqrt(variance[c] + norm_epsilon);
}

void layer_norm_weight_gradient(const float* x, const float* dy, RowSizes s, const float* mean, const float* variance,
                                float* dscale, float* dshift) {
  weight_gradient_of_rows(x, dy, s, mean, variance, dscale, dshift);
}

void layer_norm_weight_gradient(const Bf16* x, const Bf16* dy, RowSizes s, const float* mean, const float* variance,
                                float* dscale, float* dshift) {
  weight_gradient_of_rows(x, dy, s, mean, variance, dscale, dshift);
}

}  // namespace plimsoll::plain
