// Sums over columns and rows, the norms and softmax: what the loops in validate/reference do. Columns are
// summed in chunks of rows, and the chunks in their order: the same bits every time. Sums are of single precision, with
// what their roundings lost carried along: many GPUs have a 64th of that rate in double.

#include <type_traits>

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
  __device__ void scale(float by) {
    high *= by;
    lost *= by;
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

/// Of rows that blocks hold: a block sums so many that it reads far more than it writes.
std::int64_t row_chunks_of(RowSizes s) {
  return std::clamp<std::int64_t>(s.rows / 32, 1, 256);
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

/// Adds up partial sums, the chunks of each thread in their order, and calls `use(column, sum)`.
template <class Use>
__global__ void add_partials_kernel(std::int64_t columns, std::int64_t chunks, const Pair* partials, Use use) {
  __shared__ Pair sums[tile_rows][tile_columns];
  const std::int64_t column = std::int64_t{blockIdx.x} * tile_columns + threadIdx.x;
  Pair sum{};
  for (std::int64_t chunk = threadIdx.y; chunk < chunks && column < columns; chunk += tile_rows) {
    sum.add(partials[chunk * columns + column]);
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || column >= columns) return;
  for (unsigned r = 1; r < tile_rows; ++r) sum.add(sums[r][threadIdx.x]);
  use(column, sum);
}

unsigned tiles_of(std::int64_t columns) {
  return static_cast<unsigned>((columns + tile_columns - 1) / tile_columns);
}

template <class Use>
void add_partials(std::int64_t columns, std::int64_t chunks, const Pair* partials, cudaStream_t stream, Use use) {
  launch_blocks(add_partials_kernel<Use>, tiles_of(columns), dim3(tile_columns, tile_rows), stream, columns, chunks,
                partials, use);
}

/// Sums `term(row, column)` over the rows and calls `use(column, sum)`.
template <class Term, class Use>
void sum_columns(RowSizes s, Pair* partials, cudaStream_t stream, Term term, Use use) {
  const std::int64_t chunks = chunks_of(s);
  launch_blocks(column_partials<Term>, dim3(tiles_of(s.columns), static_cast<unsigned>(chunks)),
                dim3(tile_columns, tile_rows), stream, s, (s.rows + chunks - 1) / chunks, partials, term);
  add_partials(s.columns, chunks, partials, stream, use);
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

/// What a thread has of its block's row: column threadIdx.x and each block_threads further. Rows that fit are read once
/// and kept in registers.
template <class Number, int held>
struct BlockRow {
  float own[held];

  __device__ BlockRow(const Number* row, std::int64_t columns) {
    UNROLLED for (int k = 0; k < held; ++k) {
      const std::int64_t c = threadIdx.x + std::int64_t{k} * block_threads;
      own[k] = c < columns ? as_float(read(row + c)) : 0;
    }
  }
  __device__ float at(int k, std::int64_t) const { return own[k]; }
};

/// A wider row is read wherever it is used.
template <class Number>
struct BlockRow<Number, 0> {
  const Number* row;

  __device__ BlockRow(const Number* x, std::int64_t) : row(x) {}
  __device__ float at(int, std::int64_t c) const { return as_float(read(row + c)); }
};

constexpr int most_held = 32;  // numbers a thread: more would leave too few threads on a processor

/// Calls `work` with how many numbers of such a row a thread holds, as a constant.
template <class Work>
void with_rows(std::int64_t columns, Work work) {
  if (columns <= 4 * block_threads) return work(std::integral_constant<int, 4>{});
  if (columns <= 16 * block_threads) return work(std::integral_constant<int, 16>{});
  if (columns <= most_held * block_threads) return work(std::integral_constant<int, most_held>{});
  work(std::integral_constant<int, 0>{});
}

/// Calls `work(k, column)` for each column of the thread, the k-th of its row.
template <int held, class Work>
__device__ void for_columns(std::int64_t columns, Work work) {
  if constexpr (held > 0) {
    UNROLLED for (int k = 0; k < held; ++k) {
      const std::int64_t c = threadIdx.x + std::int64_t{k} * block_threads;
      if (c < columns) work(k, c);
    }
  } else {
    for (std::int64_t c = threadIdx.x; c < columns; c += block_threads) work(0, c);
  }
}

/// Of one row, by one block.
struct LayerStatistics {
  float mean, variance, inverse;

  template <class Number, int held>
  __device__ LayerStatistics(const BlockRow<Number, held>& row, std::int64_t columns)
      : mean(0), variance(0), inverse(0) {
    const auto count = static_cast<float>(columns);
    Pair own{};
    for_columns<held>(columns, [&](int k, std::int64_t c) { own.a.add(row.at(k, c)); });
    mean = block_sum(own).a.high / count;
    own = {};
    for_columns<held>(columns, [&](int k, std::int64_t c) {
      const float d = row.at(k, c) - mean;
      own.a.add(d * d);
    });
    variance = block_sum(own).a.high / count;
    inverse = inverse_deviation(variance);
  }
  /// Of the gradients of shift and scale.
  __device__ Terms terms(float x, float g) const { return {g, (x - mean) * inverse * g}; }
};

template <class Number, int held>
__global__ void layer_norm_kernel(const Number* x, const float* scale, const float* shift, std::int64_t columns,
                                  Number* y) {
  const std::int64_t first = std::int64_t{blockIdx.x} * columns;
  const BlockRow<Number, held> row(x + first, columns);
  const LayerStatistics of(row, columns);
  for_columns<held>(columns, [&](int k, std::int64_t c) {
    y[first + c] = stored_as<Number>((row.at(k, c) - of.mean) * of.inverse * read(scale + c) + read(shift + c));
  });
}

template <class Number, int held>
__global__ void layer_norm_input_gradient_kernel(const Number* x, const float* scale, const Number* dy,
                                                 std::int64_t columns, Number* dx) {
  const std::int64_t first = std::int64_t{blockIdx.x} * columns;
  const BlockRow<Number, held> row(x + first, columns), above(dy + first, columns);
  const LayerStatistics of(row, columns);
  Pair own{};
  for_columns<held>(columns, [&](int k, std::int64_t c) {
    const float g = above.at(k, c) * read(scale + c);
    own.a.add(g);
    own.b.add(g * (row.at(k, c) - of.mean) * of.inverse);
  });
  const Pair sum = block_sum(own);
  const auto count = static_cast<float>(columns);
  const float mean_gradient = sum.a.high / count, mean_dot = sum.b.high / count;
  for_columns<held>(columns, [&](int k, std::int64_t c) {
    const float normal = (row.at(k, c) - of.mean) * of.inverse;
    dx[first + c] =
        stored_as<Number>(of.inverse * (above.at(k, c) * read(scale + c) - mean_gradient - normal * mean_dot));
  });
}

template <class Number>
__global__ void row_statistics_kernel(const Number* x, std::int64_t columns, float* mean, float* variance) {
  const LayerStatistics of(BlockRow<Number, 0>(x + std::int64_t{blockIdx.x} * columns, columns), columns);
  if (threadIdx.x > 0) return;
  mean[blockIdx.x] = of.mean;
  variance[blockIdx.x] = of.variance;
}

/// 1 / sqrt(mean of the squares + epsilon) of one row, by one block.
struct RootStatistics {
  float inverse;

  template <class Number, int held>
  __device__ RootStatistics(const BlockRow<Number, held>& row, std::int64_t columns) : inverse(0) {
    Pair own{};
    for_columns<held>(columns, [&](int k, std::int64_t c) { own.a.add(row.at(k, c) * row.at(k, c)); });
    inverse = inverse_deviation(block_sum(own).a.high / static_cast<float>(columns));
  }
  __device__ Terms terms(float x, float g) const { return {g * x * inverse, 0}; }
};

template <class Number, int held>
__global__ void root_norm_kernel(const Number* x, const float* scale, std::int64_t columns, Number* y) {
  const std::int64_t first = std::int64_t{blockIdx.x} * columns;
  const BlockRow<Number, held> row(x + first, columns);
  const RootStatistics of(row, columns);
  for_columns<held>(columns, [&](int k, std::int64_t c) {
    y[first + c] = stored_as<Number>(row.at(k, c) * of.inverse * read(scale + c));
  });
}

template <class Number, int held>
__global__ void root_norm_input_gradient_kernel(const Number* x, const float* scale, const Number* dy,
                                                std::int64_t columns, Number* dx) {
  const std::int64_t first = std::int64_t{blockIdx.x} * columns;
  const BlockRow<Number, held> row(x + first, columns), above(dy + first, columns);
  const RootStatistics of(row, columns);
  Pair own{};
  for_columns<held>(columns, [&](int k, std::int64_t c) {
    own.a.add(above.at(k, c) * read(scale + c) * (row.at(k, c) * of.inverse));
  });
  const float mean = block_sum(own).a.high / static_cast<float>(columns);
  for_columns<held>(columns, [&](int k, std::int64_t c) {
    dx[first + c] =
        stored_as<Number>(of.inverse * (above.at(k, c) * read(scale + c) - row.at(k, c) * of.inverse * mean));
  });
}

template <class Number>
__global__ void inverse_roots_kernel(const Number* x, std::int64_t columns, float* inverse) {
  const RootStatistics of(BlockRow<Number, 0>(x + std::int64_t{blockIdx.x} * columns, columns), columns);
  if (threadIdx.x == 0) inverse[blockIdx.x] = of.inverse;
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

/// A block's sums of a norm's weight gradients over its rows, whose statistics it finds on the way.
template <class Number, int held, class Statistics>
__global__ void row_gradient_partials(const Number* x, const Number* dy, RowSizes s, std::int64_t chunk_rows,
                                      Pair* partials) {
  const std::int64_t first = std::int64_t{blockIdx.x} * chunk_rows;
  const std::int64_t last = first + chunk_rows < s.rows ? first + chunk_rows : s.rows;
  Pair sums[held] = {};
  for (std::int64_t r = first; r < last; ++r) {
    const BlockRow<Number, held> row(x + r * s.columns, s.columns), above(dy + r * s.columns, s.columns);
    const Statistics of(row, s.columns);
    for_columns<held>(s.columns, [&](int k, std::int64_t c) {
      const Terms next = of.terms(row.at(k, c), above.at(k, c));
      sums[k].a.add(next.a);
      sums[k].b.add(next.b);
    });
  }
  for_columns<held>(s.columns,
                    [&](int k, std::int64_t c) { partials[std::int64_t{blockIdx.x} * s.columns + c] = sums[k]; });
}

/// One launch for statistics and partial sums, one that adds these up. Rows that no block holds take one more.
template <class Statistics, class Number, class Use, class Wide>
void row_gradients(const Number* x, const Number* dy, RowSizes s, Pair* partials, cudaStream_t stream, Use use,
                   Wide wide) {
  with_rows(s.columns, [&]<int held>(std::integral_constant<int, held>) {
    if constexpr (held == 0) {
      wide();
    } else {
      const std::int64_t chunks = row_chunks_of(s);
      launch_blocks(row_gradient_partials<Number, held, Statistics>, static_cast<unsigned>(chunks), block_threads,
                    stream, x, dy, s, (s.rows + chunks - 1) / chunks, partials);
      add_partials(s.columns, chunks, partials, stream, use);
    }
  });
}

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

template <class From, class To, int held>
__global__ void softmax_kernel(const From* x, std::int64_t columns, To* y) {
  const std::int64_t first = std::int64_t{blockIdx.x} * columns;
  const BlockRow<From, held> row(x + first, columns);
  float own_largest = -INFINITY;
  Pair own{};
  if constexpr (held > 0) {
    for_columns<held>(columns, [&](int k, std::int64_t c) { own_largest = fmaxf(own_largest, row.at(k, c)); });
  } else {  // the sum on the way: what has been summed is of another largest one
    for_columns<held>(columns, [&](int k, std::int64_t c) {
      const float next = row.at(k, c);
      if (next > own_largest) {
        own.a.scale(expf(own_largest - next));
        own_largest = next;
      }
      if (next > -INFINITY) own.a.add(expf(next - own_largest));
    });
  }
  const float largest = block_max(own_largest);
  if constexpr (held > 0) {
    for_columns<held>(columns, [&](int k, std::int64_t c) { own.a.add(expf(row.at(k, c) - largest)); });
  } else {
    own.a.scale(expf(own_largest - largest));
  }
  const float sum = block_sum(own).a.high;
  for_columns<held>(columns,
                    [&](int k, std::int64_t c) { y[first + c] = stored_as<To>(expf(row.at(k, c) - largest) / sum); });
}

template <class From, class To, int held>
__global__ void softmax_gradient_kernel(const From* y, const From* dy, std::int64_t columns, To* dx) {
  const std::int64_t first = std::int64_t{blockIdx.x} * columns;
  const BlockRow<From, held> row(y + first, columns), above(dy + first, columns);
  Pair own{};
  for_columns<held>(columns, [&](int k, std::int64_t c) { own.a.add(row.at(k, c) * above.at(k, c)); });
  const float dot = block_sum(own).a.high;
  for_columns<held>(
      columns, [&](int k, std::int64_t c) { dx[first + c] = stored_as<To>(row.at(k, c) * (above.at(k, c) - dot)); });
}

/// Of the partial sums of a norm's weight gradients, and of `statistics` numbers a row that no block holds.
std::int64_t row_sums_scratch(RowSizes s, std::int64_t statistics) {
  if (s.columns > most_held * block_threads) {
    return column_sums_scratch(s) + s.rows * statistics * static_cast<std::int64_t>(sizeof(float));
  }
  return row_chunks_of(s) * s.columns * static_cast<std::int64_t>(sizeof(Pair));
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
  with_rows(s.columns, [&]<int held>(std::integral_constant<int, held>) {
    launch_blocks(layer_norm_kernel<Number, held>, static_cast<unsigned>(s.rows), block_threads, stream, x, scale,
                  shift, s.columns, y);
  });
}
template void layer_norm(const float*, const float*, const float*, RowSizes, float*, cudaStream_t);
template void layer_norm(const Bf16*, const float*, const float*, RowSizes, Bf16*, cudaStream_t);

template <class Number>
void layer_norm_input_gradient(const Number* x, const float* scale, const Number* dy, RowSizes s, Number* dx,
                               cudaStream_t stream) {
  with_rows(s.columns, [&]<int held>(std::integral_constant<int, held>) {
    launch_blocks(layer_norm_input_gradient_kernel<Number, held>, static_cast<unsigned>(s.rows), block_threads, stream,
                  x, scale, dy, s.columns, dx);
  });
}
template void layer_norm_input_gradient(const float*, const float*, const float*, RowSizes, float*, cudaStream_t);
template void layer_norm_input_gradient(const Bf16*, const float*, const Bf16*, RowSizes, Bf16*, cudaStream_t);

std::int64_t layer_norm_weight_scratch(RowSizes s) {
  return row_sums_scratch(s, 2);
}

template <class Number>
void layer_norm_weight_gradient(const Number* x, const Number* dy, RowSizes s, void* scratch, float* dscale,
                                float* dshift, cudaStream_t stream) {
  auto* partials = static_cast<Pair*>(scratch);
  const StoreWeightGradients use{dscale, dshift};
  row_gradients<LayerStatistics>(x, dy, s, partials, stream, use, [&] {
    auto* mean = reinterpret_cast<float*>(partials + chunks_of(s) * s.columns);
    float* variance = mean + s.rows;
    launch_blocks(row_statistics_kernel<Number>, static_cast<unsigned>(s.rows), block_threads, stream, x, s.columns,
                  mean, variance);
    sum_columns(s, partials, stream, RowGradientOf<Number>{x, dy, mean, variance, s.columns}, use);
  });
}
template void layer_norm_weight_gradient(const float*, const float*, RowSizes, void*, float*, float*, cudaStream_t);
template void layer_norm_weight_gradient(const Bf16*, const Bf16*, RowSizes, void*, float*, float*, cudaStream_t);

template <class Number>
void root_norm(const Number* x, const float* scale, RowSizes s, Number* y, cudaStream_t stream) {
  with_rows(s.columns, [&]<int held>(std::integral_constant<int, held>) {
    launch_blocks(root_norm_kernel<Number, held>, static_cast<unsigned>(s.rows), block_threads, stream, x, scale,
                  s.columns, y);
  });
}
template void root_norm(const float*, const float*, RowSizes, float*, cudaStream_t);
template void root_norm(const Bf16*, const float*, RowSizes, Bf16*, cudaStream_t);

template <class Number>
void root_norm_input_gradient(const Number* x, const float* scale, const Number* dy, RowSizes s, Number* dx,
                              cudaStream_t stream) {
  with_rows(s.columns, [&]<int held>(std::integral_constant<int, held>) {
    launch_blocks(root_norm_input_gradient_kernel<Number, held>, static_cast<unsigned>(s.rows), block_threads, stream,
                  x, scale, dy, s.columns, dx);
  });
}
template void root_norm_input_gradient(const float*, const float*, const float*, RowSizes, float*, cudaStream_t);
template void root_norm_input_gradient(const Bf16*, const float*, const Bf16*, RowSizes, Bf16*, cudaStream_t);

std::int64_t root_norm_weight_scratch(RowSizes s) {
  return row_sums_scratch(s, 1);
}

template <class Number>
void root_norm_weight_gradient(const Number* x, const Number* dy, RowSizes s, void* scratch, float* dscale,
                               cudaStream_t stream) {
  auto* partials = static_cast<Pair*>(scratch);
  const StoreSum use{dscale};
  row_gradients<RootStatistics>(x, dy, s, partials, stream, use, [&] {
    auto* inverse = reinterpret_cast<float*>(partials + chunks_of(s) * s.columns);
    launch_blocks(inverse_roots_kernel<Number>, static_cast<unsigned>(s.rows), block_threads, stream, x, s.columns,
                  inverse);
    sum_columns(s, partials, stream, RootGradientOf<Number>{x, dy, inverse, s.columns}, use);
  });
}
template void root_norm_weight_gradient(const float*, const float*, RowSizes, void*, float*, cudaStream_t);
template void root_norm_weight_gradient(const Bf16*, const Bf16*, RowSizes, void*, float*, cudaStream_t);

template <class From, class To>
void softmax(const From* x, RowSizes s, To* y, cudaStream_t stream) {
  with_rows(s.columns, [&]<int held>(std::integral_constant<int, held>) {
    launch_blocks(softmax_kernel<From, To, held>, static_cast<unsigned>(s.rows), block_threads, stream, x, s.columns,
                  y);
  });
}
template void softmax(const float*, RowSizes, float*, cudaStream_t);
template void softmax(const Bf16*, RowSizes, float*, cudaStream_t);
template void softmax(const Bf16*, RowSizes, Bf16*, cudaStream_t);

template <class From, class To>
void softmax_gradient(const From* y, const From* dy, RowSizes s, To* dx, cudaStream_t stream) {
  with_rows(s.columns, [&]<int held>(std::integral_constant<int, held>) {
    launch_blocks(softmax_gradient_kernel<From, To, held>, static_cast<unsigned>(s.rows), block_threads, stream, y, dy,
                  s.columns, dx);
  });
}
template void softmax_gradient(const float*, const float*, RowSizes, float*, cudaStream_t);
template void softmax_gradient(const float*, const float*, RowSizes, Bf16*, cudaStream_t);
template void softmax_gradient(const Bf16*, const Bf16*, RowSizes, Bf16*, cudaStream_t);

}  // namespace plimsoll::launch
