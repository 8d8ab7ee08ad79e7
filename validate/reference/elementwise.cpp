#include "validate/reference/elementwise.h"

#include <algorithm>
#include <cmath>

#include "validate/reference/formulas.h"

namespace plimsoll::plain {
namespace {

template <class Number>
void mask_rows(Number* scores, std::int64_t rows, std::int64_t queries, std::int64_t keys) {
  for (std::int64_t row = 0; row < rows; ++row) {
    Number* own = scores + row * keys;
    std::fill(own + keys - queries + row % queries + 1, own + keys, stored_as<Number>(-INFINITY));
  }
}

template <class Number>
void sums_of_columns(const Number* x, std::int64_t rows, std::int64_t columns, float* sums) {
  std::fill_n(sums, columns, 0.0F);
  for (std::int64_t r = 0; r < rows; ++r) {
    const Number* row = x + r * columns;
    for (std::int64_t j = 0; j < columns; ++j) sums[j] += as_float(row[j]);
  }
}

template <class Number, class Given>
void rounded_in_8_bits(const Given* x, std::int64_t n, float* y) {
  float largest = 0;
  for (std::int64_t i = 0; i < n; ++i) largest = std::fmax(largest, std::fabs(as_float(x[i])));
  const float scale = scale_to_8_bits<Number>(largest), back = 1.0F / scale;
  for (std::int64_t i = 0; i < n; ++i) y[i] = as_float(stored_as<Number>(as_float(x[i]) * scale)) * back;
}

template <class Given>
void rounded_in_8_bits(const Given* x, std::int64_t n, In8Bits form, float* y) {
  if (form == In8Bits::e5m2) return rounded_in_8_bits<E5m2>(x, n, y);
  rounded_in_8_bits<E4m3>(x, n, y);
}

}  // namespace

void relu(const float* x, float* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] > 0 ? x[i] : 0;
}

void relu_gradient(const float* y, const float* dy, float* dx, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) dx[i] = y[i] > 0 ? dy[i] : 0;
}

void gelu(const float* x, float* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = plimsoll::gelu(x[i]);
}

void gelu_gradient(const float* x, const float* dy, float* dx, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) dx[i] = dy[i] * gelu_slope(x[i]);
}

void add(const float* a, const float* b, float* sum, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) sum[i] = a[i] + b[i];
}

void accumulate(float* sum, const float* part, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) sum[i] += part[i];
}

void mask_scores(float* scores, std::int64_t rows, std::int64_t queries, std::int64_t keys) {
  mask_rows(scores, rows, queries, keys);
}

void mask_scores(Bf16* scores, std::int64_t rows, std::int64_t queries, std::int64_t keys) {
  mask_rows(scores, rows, queries, keys);
}

void column_sums(const float* x, std::int64_t rows, std::int64_t columns, float* sums) {
  sums_of_columns(x, rows, columns, sums);
}

void column_sums(const Bf16* x, std::int64_t rows, std::int64_t columns, float* sums) {
  sums_of_columns(x, rows, columns, sums);
}

void widen(const Bf16* x, std::int64_t n, float* y) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = as_float(x[i]);
}

void narrow(const float* x, std::int64_t n, Bf16* y) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = as_bf16(x[i]);
}

void through_8_bits(const float* x, std::int64_t n, In8Bits form, float* y) {
  rounded_in_8_bits(x, n, form, y);
}

void through_8_bits(const Bf16* x, std::int64_t n, In8Bits form, float* y) {
  rounded_in_8_bits(x, n, form, y);
}

void transpose(const float* x, std::int64_t outer, std::int64_t a, std::int64_t b, float* y) {
  for (std::int64_t o = 0; o < outer; ++o) {
    for (std::int64_t i = 0; i < a; ++i) {
      for (std::int64_t j = 0; j < b; ++j) y[(o * b + j) * a + i] = x[(o * a + i) * b + j];
    }
  }
}

void sgd(float* w, const float* g, std::int64_t n, const UpdateStep& step) {
  for (std::int64_t i = 0; i < n; ++i) sgd_update(w[i], g[i], step);
}

void momentum(float* w, const float* g, float* v, std::int64_t n, const UpdateStep& step) {
  for (std::int64_t i = 0; i < n; ++i) momentum_update(w[i], g[i], v[i], step);
}

void adam(float* w, const float* g, float* m, float* v, std::int64_t n, const UpdateStep& step) {
  for (std::int64_t i = 0; i < n; ++i) adam_update(w[i], g[i], m[i], v[i], step);
}

}  // namespace plimsoll::plain
