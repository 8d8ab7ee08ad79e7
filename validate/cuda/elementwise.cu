// Number by number, what validate/reference/elementwise.cpp does.

#include "validate/cuda/grid.cuh"
#include "validate/cuda/launch.h"

namespace plimsoll::launch {
namespace {

/// Where number i of (batch, heads, sequence, size) lies among the rows, of which each head has an equal part.
__device__ std::int64_t place_in_rows(const HeadRows& r, std::int64_t i) {
  const std::int64_t d = i % r.size, t = i / r.size % r.sequence;
  const std::int64_t h = i / (r.size * r.sequence) % r.heads, b = i / (r.size * r.sequence * r.heads);
  return (b * r.sequence + t) * r.leading + r.offset + h * (r.leading / r.heads) + d;
}

template <class Number>
void relu_of(const Number* x, Number* y, std::int64_t n, cudaStream_t stream) {
  for_each(n, stream, [=] __device__(std::int64_t i) { y[i] = as_float(x[i]) > 0 ? x[i] : stored_as<Number>(0); });
}

template <class Number>
void relu_gradient_of(const Number* y, const Number* dy, Number* dx, std::int64_t n, cudaStream_t stream) {
  for_each(n, stream, [=] __device__(std::int64_t i) { dx[i] = as_float(y[i]) > 0 ? dy[i] : stored_as<Number>(0); });
}

template <class Number>
void gelu_of(const Number* x, Number* y, std::int64_t n, cudaStream_t stream) {
  for_each(n, stream, [=] __device__(std::int64_t i) { y[i] = stored_as<Number>(plimsoll::gelu(as_float(x[i]))); });
}

template <class Number>
void gelu_gradient_of(const Number* x, const Number* dy, Number* dx, std::int64_t n, cudaStream_t stream) {
  for_each(n, stream,
           [=] __device__(std::int64_t i) { dx[i] = stored_as<Number>(as_float(dy[i]) * gelu_slope(as_float(x[i]))); });
}

template <class Number>
void sum_of(const Number* a, const Number* b, Number* sum, std::int64_t n, cudaStream_t stream) {
  for_each(n, stream, [=] __device__(std::int64_t i) { sum[i] = stored_as<Number>(as_float(a[i]) + as_float(b[i])); });
}

}  // namespace

void relu(const float* x, float* y, std::int64_t n, cudaStream_t stream) {
  relu_of(x, y, n, stream);
}

void relu(const Bf16* x, Bf16* y, std::int64_t n, cudaStream_t stream) {
  relu_of(x, y, n, stream);
}

void relu_gradient(const float* y, const float* dy, float* dx, std::int64_t n, cudaStream_t stream) {
  relu_gradient_of(y, dy, dx, n, stream);
}

void relu_gradient(const Bf16* y, const Bf16* dy, Bf16* dx, std::int64_t n, cudaStream_t stream) {
  relu_gradient_of(y, dy, dx, n, stream);
}

void gelu(const float* x, float* y, std::int64_t n, cudaStream_t stream) {
  gelu_of(x, y, n, stream);
}

void gelu(const Bf16* x, Bf16* y, std::int64_t n, cudaStream_t stream) {
  gelu_of(x, y, n, stream);
}

void gelu_gradient(const float* x, const float* dy, float* dx, std::int64_t n, cudaStream_t stream) {
  gelu_gradient_of(x, dy, dx, n, stream);
}

void gelu_gradient(const Bf16* x, const Bf16* dy, Bf16* dx, std::int64_t n, cudaStream_t stream) {
  gelu_gradient_of(x, dy, dx, n, stream);
}

void add(const float* a, const float* b, float* sum, std::int64_t n, cudaStream_t stream) {
  sum_of(a, b, sum, n, stream);
}

void add(const Bf16* a, const Bf16* b, Bf16* sum, std::int64_t n, cudaStream_t stream) {
  sum_of(a, b, sum, n, stream);
}

void widen(const Bf16* x, std::int64_t n, float* y, cudaStream_t stream) {
  for_each(n, stream, [=] __device__(std::int64_t i) { y[i] = as_float(x[i]); });
}

void narrow(const float* x, std::int64_t n, Bf16* y, cudaStream_t stream) {
  for_each(n, stream, [=] __device__(std::int64_t i) { y[i] = as_bf16(x[i]); });
}

void round_numbers(const float* x, std::int64_t n, float* y, cudaStream_t stream) {
  for_each(n, stream, [=] __device__(std::int64_t i) { y[i] = as_float(as_bf16(x[i])); });
}

void accumulate(float* sum, const float* part, std::int64_t n, cudaStream_t stream) {
  for_each(n, stream, [=] __device__(std::int64_t i) { sum[i] += part[i]; });
}

void mask_scores(float* scores, std::int64_t rows, std::int64_t sequence, cudaStream_t stream) {
  for_each(rows * sequence, stream, [=] __device__(std::int64_t i) {
    if (i % sequence > i / sequence % sequence) scores[i] = -INFINITY;
  });
}

void transpose(const float* x, std::int64_t outer, std::int64_t a, std::int64_t b, float* y, cudaStream_t stream) {
  for_each(outer * a * b, stream, [=] __device__(std::int64_t k) {  // k walks y (outer, b, a)
    const std::int64_t i = k % a, j = k / a % b, o = k / (a * b);
    y[k] = x[(o * a + i) * b + j];
  });
}

void gather_heads(const float* x, const HeadRows& r, float* heads, cudaStream_t stream) {
  for_each(r.batch * r.heads * r.sequence * r.size, stream,
           [=] __device__(std::int64_t i) { heads[i] = x[place_in_rows(r, i)]; });
}

void scatter_heads(const float* heads, const HeadRows& r, float* x, cudaStream_t stream) {
  for_each(r.batch * r.heads * r.sequence * r.size, stream,
           [=] __device__(std::int64_t i) { x[place_in_rows(r, i)] = heads[i]; });
}

void sgd(float* w, const float* g, std::int64_t n, cudaStream_t stream) {
  for_each(n, stream, [=] __device__(std::int64_t i) { sgd_update(w[i], g[i]); });
}

void momentum(float* w, const float* g, float* v, std::int64_t n, cudaStream_t stream) {
  for_each(n, stream, [=] __device__(std::int64_t i) { momentum_update(w[i], g[i], v[i]); });
}

void adam(float* w, const float* g, float* m, float* v, std::int64_t n, cudaStream_t stream) {
  for_each(n, stream, [=] __device__(std::int64_t i) { adam_update(w[i], g[i], m[i], v[i]); });
}

}  // namespace plimsoll::launch
