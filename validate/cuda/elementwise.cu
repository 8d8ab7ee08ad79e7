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

template <class Number>
void relu(const Number* x, Number* y, std::int64_t n, cudaStream_t stream) {
  for_each(n, stream, [=] __device__(std::int64_t i) { y[i] = as_float(x[i]) > 0 ? x[i] : stored_as<Number>(0); });
}
template void relu(const float*, float*, std::int64_t, cudaStream_t);
template void relu(const Bf16*, Bf16*, std::int64_t, cudaStream_t);

template <class Number>
void relu_gradient(const Number* y, const Number* dy, Number* dx, std::int64_t n, cudaStream_t stream) {
  for_each(n, stream, [=] __device__(std::int64_t i) { dx[i] = as_float(y[i]) > 0 ? dy[i] : stored_as<Number>(0); });
}
template void relu_gradient(const float*, const float*, float*, std::int64_t, cudaStream_t);
template void relu_gradient(const Bf16*, const Bf16*, Bf16*, std::int64_t, cudaStream_t);

template <class Number>
void gelu(const Number* x, Number* y, std::int64_t n, cudaStream_t stream) {
  for_each(n, stream, [=] __device__(std::int64_t i) { y[i] = stored_as<Number>(plimsoll::gelu(as_float(x[i]))); });
}
template void gelu(const float*, float*, std::int64_t, cudaStream_t);
template void gelu(const Bf16*, Bf16*, std::int64_t, cudaStream_t);

template <class Number>
void gelu_gradient(const Number* x, const Number* dy, Number* dx, std::int64_t n, cudaStream_t stream) {
  for_each(n, stream,
           [=] __device__(std::int64_t i) { dx[i] = stored_as<Number>(as_float(dy[i]) * gelu_slope(as_float(x[i]))); });
}
template void gelu_gradient(const float*, const float*, float*, std::int64_t, cudaStream_t);
template void gelu_gradient(const Bf16*, const Bf16*, Bf16*, std::int64_t, cudaStream_t);

template <class Number>
void add(const Number* a, const Number* b, Number* sum, std::int64_t n, cudaStream_t stream) {
  for_each(n, stream, [=] __device__(std::int64_t i) { sum[i] = stored_as<Number>(as_float(a[i]) + as_float(b[i])); });
}
template void add(const float*, const float*, float*, std::int64_t, cudaStream_t);
template void add(const Bf16*, const Bf16*, Bf16*, std::int64_t, cudaStream_t);

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

template <class Number>
void mask_scores(Number* scores, std::int64_t rows, std::int64_t sequence, cudaStream_t stream) {
  for_each(rows * sequence, stream, [=] __device__(std::int64_t i) {
    if (i % sequence > i / sequence % sequence) scores[i] = stored_as<Number>(-INFINITY);
  });
}
template void mask_scores(float*, std::int64_t, std::int64_t, cudaStream_t);
template void mask_scores(Bf16*, std::int64_t, std::int64_t, cudaStream_t);

template <class From, class To>
void transpose(const From* x, std::int64_t outer, std::int64_t a, std::int64_t b, To* y, cudaStream_t stream) {
  for_each(outer * a * b, stream, [=] __device__(std::int64_t k) {  // k walks y (outer, b, a)
    const std::int64_t i = k % a, j = k / a % b, o = k / (a * b);
    y[k] = stored_as<To>(as_float(x[(o * a + i) * b + j]));
  });
}
template void transpose(const float*, std::int64_t, std::int64_t, std::int64_t, float*, cudaStream_t);
template void transpose(const float*, std::int64_t, std::int64_t, std::int64_t, Bf16*, cudaStream_t);

template <class Number>
void gather_heads(const Number* x, const HeadRows& r, Number* heads, cudaStream_t stream) {
  for_each(r.batch * r.heads * r.sequence * r.size, stream,
           [=] __device__(std::int64_t i) { heads[i] = x[place_in_rows(r, i)]; });
}
template void gather_heads(const float*, const HeadRows&, float*, cudaStream_t);
template void gather_heads(const Bf16*, const HeadRows&, Bf16*, cudaStream_t);

template <class Number>
void scatter_heads(const Number* heads, const HeadRows& r, Number* x, cudaStream_t stream) {
  for_each(r.batch * r.heads * r.sequence * r.size, stream,
           [=] __device__(std::int64_t i) { x[place_in_rows(r, i)] = heads[i]; });
}
template void scatter_heads(const float*, const HeadRows&, float*, cudaStream_t);
template void scatter_heads(const Bf16*, const HeadRows&, Bf16*, cudaStream_t);

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

// Tensors in 8 bits a number with one scale each, for products: what through_8_bits of
// validate/reference/elementwise.cpp rounds to.
namespace plimsoll::launch {
namespace {

constexpr unsigned most_parts = block_threads;  ///< which one block then takes together

/// The largest magnitude of each of so many blocks' share.
template <class Number>
__global__ void largest_magnitude_kernel(const Number* x, std::int64_t n, std::int64_t blocks, float* largest) {
  __shared__ float found[block_threads];
  const std::int64_t all = blocks * block_threads;
  float own = 0;
  for (std::int64_t i = std::int64_t{blockIdx.x} * block_threads + threadIdx.x; i < n; i += all) {
    const float number = as_float(x[i]), size = number < 0 ? -number : number;
    if (size > own) own = size;  // what is no number is not
  }
  found[threadIdx.x] = own;
  __syncthreads();
  for (unsigned half = block_threads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half && found[threadIdx.x + half] > found[threadIdx.x]) {
      found[threadIdx.x] = found[threadIdx.x + half];
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) largest[blockIdx.x] = found[0];
}

template <class Number>
void find_largest(const Number* x, std::int64_t n, float* parts, float* largest, cudaStream_t stream) {
  constexpr std::int64_t of_block = std::int64_t{8} * block_threads;
  const std::int64_t blocks = std::min<std::int64_t>(most_parts, (n + of_block - 1) / of_block);
  launch_blocks(largest_magnitude_kernel<Number>, static_cast<unsigned>(blocks), block_threads, stream, x, n, blocks,
                parts);
  launch_blocks(largest_magnitude_kernel<float>, 1, block_threads, stream, static_cast<const float*>(parts), blocks,
                std::int64_t{1}, largest);
}

}  // namespace

std::int64_t scaling_scratch() {
  return static_cast<std::int64_t>((2 + most_parts) * sizeof(float));
}

template <class Number, class Eight>
void scale_to_8_bits(const Number* x, RowSizes s, bool turned, float* scaling, Eight* y, cudaStream_t stream) {
  float* largest = scaling + 1;
  find_largest(x, s.rows * s.columns, scaling + 2, largest, stream);
  for_each(s.rows * s.columns, stream, [=] __device__(std::int64_t k) {
    const float scale = plimsoll::scale_to_8_bits<Eight>(*largest);
    const std::int64_t i = turned ? k % s.rows * s.columns + k / s.rows : k;
    y[k] = stored_as<Eight>(as_float(x[i]) * scale);
    if (k == 0) *scaling = 1.0F / scale;
  });
}
template void scale_to_8_bits(const Bf16*, RowSizes, bool, float*, E4m3*, cudaStream_t);
template void scale_to_8_bits(const Bf16*, RowSizes, bool, float*, E5m2*, cudaStream_t);
template void scale_to_8_bits(const float*, RowSizes, bool, float*, E4m3*, cudaStream_t);

}  // namespace plimsoll::launch
