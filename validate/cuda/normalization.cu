// Sums over columns and rows, the norms and softmax: what the loops in validate/reference do. Columns are
// summed in chunks of rows, and the chunks in their order: the same bits every time. Sums are of single precision, with
// what their roundings lost carried along: many GPUs have a 64th of that rate in double.

#include "validate/cuda/grid.cuh"
#include "validate/cuda/launch.h"

namespace plimsoll::launch {
namespace {

/// A sum with what its roundings have lost (Kahan): as good as one in double, rounded once.
struct Sum {
  float high, lost;

  __device__ void add(float next) {
    const float corrected = next - lost, sum = high + corrected;
    lost = (sum - high) - corrected;
    high = sum;
  }
  __device__ void add(const Sum& other) {
    add(-other.lost);
    add(other.high);
  }
};

struct Pair {
  Sum a, b;

  __device__ void add(const Pair& other) {
    a.add(other.a);
    b.add(other.b);
  }
};

/// What is summed.
struct Terms {
  float a, b;
};

constexpr unsigned tile_columns = 32, tile_rows = 8;

std::int64_t chunks_of(RowSizes s) {
  return std::clamp<std::int64_t>(s.rows / 256, 1, 128);
}

__device__ float inverse_deviation(float variance) {
  return 1.0F / sqrtf(variance + norm_epsilon);
}

/// partials is (chunks, columns). `term(row, column)` is what is summed.
template <class Term>
__global__ void column_partials(RowSizes s, std::int64_t chunk_rows, Pair* partials, Term term) {
  __shared__ Pair sums[tile_rows][tile_columns];
  const std::int64_t column = std::int64_t{blockIdx.x} * tile_columns + threadIdx.x;
  const std::int64_t first = std::int64_t{blockIdx.y} * chunk_rows;
  const std::int64_t last = first + chunk_rows < s.rows ? first + chunk_rows : s.rows;
  Pair sum{};
  if (column < s.columns) {
    for (std::int64_t row = first + threadIdx.y; row < last; row += tile_rows) {
      const Terms next = term(row, column);
      sum.a.add(next.a);
      sum.b.add(next.b);
    }
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || column >= s.columns) return;
  for (unsigned r = 1; r < tile_rows; ++r) sum.add(sums[r][threadIdx.x]);
  partials[std::int64_t{blockIdx.y} * s.columns + column] = sum;
}

/// Sums `term(row, column)` over the rows and calls `use(column, sum)`.
template <class Term, class Use>
void sum_columns(RowSizes s, Pair* partials, cudaStream_t stream, Term term, Use use) {
  const std::int64_t chunks = chunks_of(s), columns = s.columns;
  const dim3 grid(static_cast<unsigned>((columns + tile_columns - 1) / tile_columns), static_cast<unsigned>(chunks));
  launch_blocks(column_partials<Term>, grid, dim3(tile_columns, tile_rows), stream, s, (s.rows + chunks - 1) / chunks,
                partials, term);
  for_each(columns, stream, [=] __device__(std::int64_t c) {
    Pair sum{};
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) sum.add(partials[chunk * columns + c]);
    use(c, sum);
  });
}

/// Scratch of the norms by column: partial sums, one pair a column, means and variances.
struct ColumnScratch {
  Pair *partials, *sums;
  float *mean, *variance;

  ColumnScratch(void* scratch, RowSizes s)
      : partials(static_cast<Pair*>(scratch)),
        sums(partials + chunks_of(s) * s.columns),
        mean(reinterpret_cast<float*>(sums + s.columns)),
        variance(mean + s.columns) {}
};

template <class Number>
struct SumOf {
  const Number* x;
  std::int64_t columns;
  __device__ Terms operator()(std::int64_t r, std::int64_t c) const { return {as_float(x[r * columns + c]), 0}; }
};
template <class Number>
struct SquareOf {
  const Number* x;
  const float* mean;
  std::int64_t columns;
  __device__ Terms operator()(std::int64_t r, std::int64_t c) const {
    const float d = as_float(x[r * columns + c]) - mean[c];
    return {d * d, 0};
  }
};
/// The gradient, and its product with normal x, by statistics of the column.
template <class Number>
struct GradientOf {
  const Number *x, *dy;
  const float *mean, *variance;
  std::int64_t columns;
  __device__ Terms operator()(std::int64_t r, std::int64_t c) const {
    const float g = as_float(dy[r * columns + c]);
    return {g, g * (as_float(x[r * columns + c]) - mean[c]) * inverse_deviation(variance[c])};
  }
};
/// The same by statistics of the row.
template <class Number>
struct RowGradientOf {
  const Number *x, *dy;
  const float *mean, *variance;
  std::int64_t columns;
  __device__ Terms operator()(std::int64_t r, std::int64_t c) const {
    const float g = as_float(dy[r * columns + c]);
    return {g, (as_float(x[r * columns + c]) - mean[r]) * inverse_deviation(variance[r]) * g};
  }
};
struct StoreMean {
  float* mean;
  float rows;
  __device__ void operator()(std::int64_t c, Pair sum) const { mean[c] = sum.a.high / rows; }
};
struct StoreSum {
  float* sums;
  __device__ void operator()(std::int64_t c, Pair sum) const { sums[c] = sum.a.high; }
};
struct StorePair {
  Pair* sums;
  __device__ void operator()(std::int64_t c, Pair sum) const { sums[c] = sum; }
};
struct StoreWeightGradients {
  float *dscale, *dshift;
  __device__ void operator()(std::int64_t c, Pair sum) const {
    dscale[c] = sum.b.high;
    dshift[c] = sum.a.high;
  }
};

template <class Number>
void column_statistics(const Number* x, RowSizes s, const ColumnScratch& scratch, cudaStream_t stream) {
  const auto rows = static_cast<float>(s.rows);
  sum_columns(s, scratch.partials, stream, SumOf<Number>{x, s.columns}, StoreMean{scratch.mean, rows});
  sum_columns(s, scratch.partials, stream, SquareOf<Number>{x, scratch.mean, s.columns},
              StoreMean{scratch.variance, rows});
}

/// The sums over all threads of a block, for all of them: by halves, always in the same order.
__device__ Pair block_sum(Pair own) {
  __shared__ Pair sums[block_threads];
  sums[threadIdx.x] = own;
  __syncthreads();
  for (unsigned half = block_threads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x].add(sums[threadIdx.x + half]);
    __syncthreads();
  }
  const Pair sum = sums[0];
  __syncthreads();  // before the next use
  return sum;
}

/// Mean and variance of one row, by one block.
template <class Number>
__device__ void row_statistics(const Number* row, std::int64_t columns, float& mean, float& variance) {
  const auto count = static_cast<float>(columns);
  Pair own{};
  for (std::int64_t c = threadIdx.x; c < columns; c += block_threads) own.a.add(as_float(row[c]));
  mean = block_sum(own).a.high / count;
  own = {};
  for (std::int64_t c = threadIdx.x; c < columns; c += block_threads) {
    const float d = as_float(row[c]) - mean;
    own.a.add(d * d);
  }
  variance = block_sum(own).a.high / count;
}

template <class Number>
__global__ void layer_norm_kernel(const Number* x, const float* scale, const float* shift, std::int64_t columns,
                                  Number* y) {
  const std::int64_t first = std::int64_t{blockIdx.x} * columns;
  float mean = 0, variance = 0;
  row_statistics(x + first, columns, mean, variance);
  const float inverse = inverse_deviation(variance);
  for (std::int64_t c = threadIdx.x; c < columns; c += block_threads) {
    y[first + c] = stored_as<Number>((as_float(x[first + c]) - mean) * inverse * scale[c] + shift[c]);
  }
}

template <class Number>
__global__ void layer_norm_input_gradient_kernel(const Number* x, const float* scale, const Number* dy,
                                                 std::int64_t columns, Number* dx) {
  const std::int64_t first = std::int64_t{blockIdx.x} * columns;
  float mean = 0, variance = 0;
  row_statistics(x + first, columns, mean, variance);
  const float inverse = inverse_deviation(variance);
  Pair own{};
  for (std::int64_t c = threadIdx.x; c < columns; c += block_threads) {
    const float g = as_float(dy[first + c]) * scale[c];
    own.a.add(g);
    own.b.add(g * (as_float(x[first + c]) - mean) * inverse);
  }
  const Pair sum = block_sum(own);
  const auto count = static_cast<float>(columns);
  const float mean_gradient = sum.a.high / count, mean_dot = sum.b.high / count;
  for (std::int64_t c = threadIdx.x; c < columns; c += block_threads) {
    const float normal = (as_float(x[first + c]) - mean) * inverse;
    const float g = as_float(dy[first + c]) * scale[c];
    dx[first + c] = stored_as<Number>(inverse * (g - mean_gradient - normal * mean_dot));
  }
}

template <class Number>
__global__ void row_statistics_kernel(const Number* x, std::int64_t columns, float* mean, float* variance) {
  float own_mean = 0, own_variance = 0;
  row_statistics(x + std::int64_t{blockIdx.x} * columns, columns, own_mean, own_variance);
  if (threadIdx.x > 0) return;
  mean[blockIdx.x] = own_mean;
  variance[blockIdx.x] = own_variance;
}

/// 1 / sqrt(mean of the squares + epsilon) of one row, by one block.
template <class Number>
__device__ float inverse_root(const Number* row, std::int64_t columns) {
  Pair own{};
  for (std::int64_t c = threadIdx.x; c < columns; c += block_threads) own.a.add(as_float(row[c]) * as_float(row[c]));
  return inverse_deviation(block_sum(own).a.high / static_cast<float>(columns));
}

template <class Number>
__global__ void root_norm_kernel(const Number* x, const float* scale, std::int64_t columns, Number* y) {
  const std::int64_t first = std::int64_t{blockIdx.x} * columns;
  const float inverse = inverse_root(x + first, columns);
  for (std::int64_t c = threadIdx.x; c < columns; c += block_threads) {
    y[first + c] = stored_as<Number>(as_float(x[first + c]) * inverse * scale[c]);
  }
}

template <class Number>
__global__ void root_norm_input_gradient_kernel(const Number* x, const float* scale, const Number* dy,
                                                std::int64_t columns, Number* dx) {
  const std::int64_t first = std::int64_t{blockIdx.x} * columns;
  const float inverse = inverse_root(x + first, columns);
  Pair own{};
  for (std::int64_t c = threadIdx.x; c < columns; c += block_threads) {
    own.a.add(as_float(dy[first + c]) * scale[c] * (as_float(x[first + c]) * inverse));
  }
  const float mean = block_sum(own).a.high / static_cast<float>(columns);
  for (std::int64_t c = threadIdx.x; c < columns; c += block_threads) {
    const float g = as_float(dy[first + c]) * scale[c];
    dx[first + c] = stored_as<Number>(inverse * (g - as_float(x[first + c]) * inverse * mean));
  }
}

template <class Number>
__global__ void inverse_roots_kernel(const Number* x, std::int64_t columns, float* inverse) {
  const float own = inverse_root(x + std::int64_t{blockIdx.x} * columns, columns);
  if (threadIdx.x == 0) inverse[blockIdx.x] = own;
}

/// The gradient's product with normal x, by roots of the rows.
template <class Number>
struct RootGradientOf {
  const Number *x, *dy;
  const float* inverse;
  std::int64_t columns;
  __device__ Terms operator()(std::int64_t r, std::int64_t c) const {
    return {as_float(dy[r * columns + c]) * as_float(x[r * columns + c]) * inverse[r], 0};
  }
};

/// The largest number of all threads of a block, for all of them.
__device__ float block_max(float own) {
  __shared__ float largest[block_threads];
  largest[threadIdx.x] = own;
  __syncthreads();
  for (unsigned half = block_threads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) largest[threadIdx.x] = fmaxf(largest[threadIdx.x], largest[threadIdx.x + half]);
    __syncthreads();
  }
  const float all = largest[0];
  __syncthreads();  // before the next use
  return all;
}

template <class From, class To>
__global__ void softmax_kernel(const From* x, std::int64_t columns, To* y) {
  const std::int64_t first = std::int64_t{blockIdx.x} * columns;
  float own_largest = -INFINITY;
  for (std::int64_t c = threadIdx.x; c < columns; c += block_threads) {
    own_largest = fmaxf(own_largest, as_float(x[first + c]));
  }
  const float largest = block_max(own_largest);
  Pair own{};
  for (std::int64_t c = threadIdx.x; c < columns; c += block_threads) own.a.add(expf(as_float(x[first + c]) - largest));
  const float sum = block_sum(own).a.high;
  for (std::int64_t c = threadIdx.x; c < columns; c += block_threads) {
    y[first + c] = stored_as<To>(expf(as_float(x[first + c]) - largest) / sum);
  }
}

template <class From, class To>
__global__ void softmax_gradient_kernel(const From* y, const From* dy, std::int64_t columns, To* dx) {
  const std::int64_t first = std::int64_t{blockIdx.x} * columns;
  Pair own{};
  for (std::int64_t c = threadIdx.x; c < columns; c += block_threads) {
    own.a.add(as_float(y[first + c]) * as_float(dy[first + c]));
  }
  const float dot = block_sum(own).a.high;
  for (std::int64_t c = threadIdx.x; c < columns; c += block_threads) {
    dx[first + c] = stored_as<To>(as_float(y[first + c]) * (as_float(dy[first + c]) - dot));
  }
}

}  // namespace

std::int64_t column_sums_scratch(RowSizes s) {
  return chunks_of(s) * s.columns * static_cast<std::int64_t>(sizeof(Pair));
}

template <class Number>
void column_sums(const Number* x, RowSizes s, void* scratch, float* sums, cudaStream_t stream) {
  sum_columns(s, static_cast<Pair*>(scratch), stream, SumOf<Number>{x, s.columns}, StoreSum{sums});
}
template void column_sums(const float*, RowSizes, void*, float*, cudaStream_t);
template void column_sums(const Bf16*, RowSizes, void*, float*, cudaStream_t);

std::int64_t column_norm_scratch(RowSizes s) {
  return column_sums_scratch(s) + s.columns * static_cast<std::int64_t>(sizeof(Pair) + 2 * sizeof(float));
}

template <class Number>
void batch_norm(const Number* x, const float* scale, const float* shift, RowSizes s, void* scratch, float* running,
                Number* y, cudaStream_t stream) {
  const ColumnScratch own(scratch, s);
  column_statistics(x, s, own, stream);
  const std::int64_t columns = s.columns;
  const float *mean = own.mean, *variance = own.variance;
  for_each(s.rows * columns, stream, [=] __device__(std::int64_t i) {
    const std::int64_t c = i % columns;
    const float normal = (as_float(x[i]) - mean[c]) * inverse_deviation(variance[c]);
    y[i] = stored_as<Number>(normal * scale[c] + shift[c]);
  });
  if (running == nullptr) return;
  for_each(columns, stream, [=] __device__(std::int64_t c) {
    running[c] += running_share * (mean[c] - running[c]);
    running[columns + c] += running_share * (variance[c] - running[columns + c]);
  });
}
template void batch_norm(const float*, const float*, const float*, RowSizes, void*, float*, float*, cudaStream_t);
template void batch_norm(const Bf16*, const float*, const float*, RowSizes, void*, float*, Bf16*, cudaStream_t);

template <class Number>
void batch_norm_input_gradient(const Number* x, const float* scale, const Number* dy, RowSizes s, void* scratch,
                               Number* dx, cudaStream_t stream) {
  const ColumnScratch own(scratch, s);
  column_statistics(x, s, own, stream);
  sum_columns(s, own.partials, stream, GradientOf<Number>{x, dy, own.mean, own.variance, s.columns},
              StorePair{own.sums});
  const std::int64_t columns = s.columns;
  const auto rows = static_cast<float>(s.rows);
  const float *mean = own.mean, *variance = own.variance;
  const Pair* sums = own.sums;
  for_each(s.rows * columns, stream, [=] __device__(std::int64_t i) {
    const std::int64_t c = i % columns;
    const float inverse = inverse_deviation(variance[c]), normal = (as_float(x[i]) - mean[c]) * inverse;
    const float mean_gradient = sums[c].a.high / rows, mean_dot = sums[c].b.high / rows;
    dx[i] = stored_as<Number>(scale[c] * inverse * (as_float(dy[i]) - mean_gradient - normal * mean_dot));
  });
}
template void batch_norm_input_gradient(const float*, const float*, const float*, RowSizes, void*, float*,
                                        cudaStream_t);
template void batch_norm_input_gradient(const Bf16*, const float*, const Bf16*, RowSizes, void*, Bf16*, cudaStream_t);

template <class Number>
void batch_norm_weight_gradient(const Number* x, const Number* dy, RowSizes s, void* scratch, float* dscale,
                                float* dshift, cudaStream_t stream) {
  const ColumnScratch own(scratch, s);
  column_statistics(x, s, own, stream);
  sum_columns(s, own.partials, stream, GradientOf<Number>{x, dy, own.mean, own.variance, s.columns},
              StoreWeightGradients{dscale, dshift});
}
template void batch_norm_weight_gradient(const float*, const float*, RowSizes, void*, float*, float*, cudaStream_t);
template void batch_norm_weight_gradient(const Bf16*, const Bf16*, RowSizes, void*, float*, float*, cudaStream_t);

template <class Number>
void layer_norm(const Number* x, const float* scale, const float* shift, RowSizes s, Number* y, cudaStream_t stream) {
  launch_blocks(layer_norm_kernel<Number>, static_cast<unsigned>(s.rows), block_threads, stream, x, scale, shift,
                s.columns, y);
}
template void layer_norm(const float*, const float*, const float*, RowSizes, float*, cudaStream_t);
template void layer_norm(const Bf16*, const float*, const float*, RowSizes, Bf16*, cudaStream_t);

template <class Number>
void layer_norm_input_gradient(const Number* x, const float* scale, const Number* dy, RowSizes s, Number* dx,
                               cudaStream_t stream) {
  launch_blocks(layer_norm_input_gradient_kernel<Number>, static_cast<unsigned>(s.rows), block_threads, stream, x,
                scale, dy, s.columns, dx);
}
template void layer_norm_input_gradient(const float*, const float*, const float*, RowSizes, float*, cudaStream_t);
template void layer_norm_input_gradient(const Bf16*, const float*, const Bf16*, RowSizes, Bf16*, cudaStream_t);

std::int64_t layer_norm_weight_scratch(RowSizes s) {
  return column_sums_scratch(s) + s.rows * static_cast<std::int64_t>(2 * sizeof(float));
}

template <class Number>
void layer_norm_weight_gradient(const Number* x, const Number* dy, RowSizes s, void* scratch, float* dscale,
                                float* dshift, cudaStream_t stream) {
  auto* partials = static_cast<Pair*>(scratch);
  auto* mean = reinterpret_cast<float*>(partials + chunks_of(s) * s.columns);
  float* variance = mean + s.rows;
  launch_blocks(row_statistics_kernel<Number>, static_cast<unsigned>(s.rows), block_threads, stream, x, s.columns, mean,
                variance);
  sum_columns(s, partials, stream, RowGradientOf<Number>{x, dy, mean, variance, s.columns},
              StoreWeightGradients{dscale, dshift});
}
template void layer_norm_weight_gradient(const float*, const float*, RowSizes, void*, float*, float*, cudaStream_t);
template void layer_norm_weight_gradient(const Bf16*, const Bf16*, RowSizes, void*, float*, float*, cudaStream_t);

template <class Number>
void root_norm(const Number* x, const float* scale, RowSizes s, Number* y, cudaStream_t stream) {
  launch_blocks(root_norm_kernel<Number>, static_cast<unsigned>(s.rows), block_threads, stream, x, scale, s.columns, y);
}
template void root_norm(const float*, const float*, RowSizes, float*, cudaStream_t);
template void root_norm(const Bf16*, const float*, RowSizes, Bf16*, cudaStream_t);

template <class Number>
void root_norm_input_gradient(const Number* x, const float* scale, const Number* dy, RowSizes s, Number* dx,
                              cudaStream_t stream) {
  launch_blocks(root_norm_input_gradient_kernel<Number>, static_cast<unsigned>(s.rows), block_threads, stream, x, scale,
                dy, s.columns, dx);
}
template void root_norm_input_gradient(const float*, const float*, const float*, RowSizes, float*, cudaStream_t);
template void root_norm_input_gradient(const Bf16*, const float*, const Bf16*, RowSizes, Bf16*, cudaStream_t);

std::int64_t root_norm_weight_scratch(RowSizes s) {
  return column_sums_scratch(s) + s.rows * static_cast<std::int64_t>(sizeof(float));
}

template <class Number>
void root_norm_weight_gradient(const Number* x, const Number* dy, RowSizes s, void* scratch, float* dscale,
                               cudaStream_t stream) {
  auto* partials = static_cast<Pair*>(scratch);
  auto* inverse = reinterpret_cast<float*>(partials + chunks_of(s) * s.columns);
  launch_blocks(inverse_roots_kernel<Number>, static_cast<unsigned>(s.rows), block_threads, stream, x, s.columns,
                inverse);
  sum_columns(s, partials, stream, RootGradientOf<Number>{x, dy, inverse, s.columns}, StoreSum{dscale});
}
template void root_norm_weight_gradient(const float*, const float*, RowSizes, void*, float*, cudaStream_t);
template void root_norm_weight_gradient(const Bf16*, const Bf16*, RowSizes, void*, float*, cudaStream_t);

template <class From, class To>
void softmax(const From* x, RowSizes s, To* y, cudaStream_t stream) {
  launch_blocks(softmax_kernel<From, To>, static_cast<unsigned>(s.rows), block_threads, stream, x, s.columns, y);
}
template void softmax(const float*, RowSizes, float*, cudaStream_t);
template void softmax(const Bf16*, RowSizes, float*, cudaStream_t);
template void softmax(const Bf16*, RowSizes, Bf16*, cudaStream_t);

template <class From, class To>
void softmax_gradient(const From* y, const From* dy, RowSizes s, To* dx, cudaStream_t stream) {
  launch_blocks(softmax_gradient_kernel<From, To>, static_cast<unsigned>(s.rows), block_threads, stream, y, dy,
                s.columns, dx);
}
template void softmax_gradient(const float*, const float*, RowSizes, float*, cudaStream_t);
template void softmax_gradient(const float*, const float*, RowSizes, Bf16*, cudaStream_t);
template void softmax_gradient(const Bf16*, const Bf16*, RowSizes, Bf16*, cudaStream_t);

}  // namespace plimsoll::launch
