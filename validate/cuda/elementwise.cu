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

}  // namespace

void relu(const float* x, float* y, std::int64_t n, cudaStream_t stream) {
  for_each(n, stream, [=] __device__(std::int64_t i) { y[i] = x[i] > 0 ? x[i] : 0; });
}

void relu_gradient(const float* y, const float* dy, float* dx, std::int64_t n, cudaStream_t stream) {
  for_each(n, stream, [=] __device__(std::int64_t i) { dx[i] = y[i] > 0 ? dy[i] : 0; });
}

void gelu(const float* x, float* y, std::int64_t n, cudaStream_t stream) {
  for_each(n, stream, [=] __device__(std::int64_t i) { y[i] = plimsoll::gelu(x[i]); });
}

void gelu_gradient(const float* x, const float* dy, float* dx, std::int64_t n, cudaStream_t stream) {
  for_each(n, stream, [=] __device__(std::int64_t i) { dx[i] = dy[i] * gelu_slope(x[i]); });
}

void add(const float* a, const float* b, float* sum, std::int64_t n, cudaStream_t stream) {
  for_each(n, stream, [=] __device__(std::int64_t i) { sum[i] = a[i] + b[i]; });
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
