// Pooling, the two ends of a network, the LSTM cell, rotation by positions and the gate of an MLP: what layers.cpp and
// decoder_layers.cpp in validate/reference do. Where these scatter, kernels gather, so that every number is one
// thread's sum in a fixed order.

#include <utility>

#include "validate/cuda/grid.cuh"
#include "validate/cuda/launch.h"

namespace plimsoll::launch {
namespace {

constexpr int digit_bits = 4;
constexpr unsigned digits = 1U << digit_bits;

int digits_below(std::int64_t words) {
  int count = 1;
  while (words > std::int64_t{1} << count * digit_bits) ++count;
  return count;
}

/// How a pass of sorting shares the rows out: each thread of each block has some that follow each other.
struct SortShares {
  static constexpr std::int64_t rows_a_thread = 8;
  std::int64_t rows;

  unsigned blocks() const {
    constexpr std::int64_t of_block = rows_a_thread * block_threads;
    return static_cast<unsigned>((rows + of_block - 1) / of_block);
  }
};

/// A pass of sorting by words, from the lowest digit on: rows of equal digits keep their order. From nowhere: as they
/// come.
struct SortPass {
  const std::int32_t *token, *from;
  std::int64_t rows;
  int pass;

  __device__ std::int32_t row_at(std::int64_t i) const {
    return from == nullptr ? static_cast<std::int32_t>(i) : from[i];
  }
  __device__ unsigned digit_of(std::int32_t row) const {
    return (static_cast<unsigned>(token[row]) >> static_cast<unsigned>(pass * digit_bits)) & (digits - 1);
  }
  __device__ std::int64_t first() const {
    return (std::int64_t{blockIdx.x} * block_threads + threadIdx.x) * SortShares::rows_a_thread;
  }
  __device__ std::int64_t last() const {
    const std::int64_t behind = first() + SortShares::rows_a_thread;
    return behind < rows ? behind : rows;
  }
};

/// How many rows of each digit the block has: `counts` is (digits, blocks).
__global__ void count_digits_kernel(SortPass sort, unsigned blocks, std::int32_t* counts) {
  __shared__ std::int32_t place[digits * block_threads];  // by digit, then thread
  const unsigned own = threadIdx.x;
  for (unsigned d = 0; d < digits; ++d) place[d * block_threads + own] = 0;
  for (std::int64_t i = sort.first(); i < sort.last(); ++i) {
    ++place[sort.digit_of(sort.row_at(i)) * block_threads + own];
  }
  __syncthreads();
  if (own >= digits) return;
  std::int32_t sum = 0;
  for (unsigned t = 0; t < block_threads; ++t) sum += place[own * block_threads + t];
  counts[own * blocks + blockIdx.x] = sum;
}

/// Makes counts the sums of all before them: by one block, a few for each of its threads.
__global__ void places_of_counts_kernel(std::int64_t n, std::int32_t* counts) {
  __shared__ std::int32_t sums[block_threads];
  const unsigned own = threadIdx.x;
  const std::int64_t share = (n + block_threads - 1) / block_threads;
  const std::int64_t first = own * share, last = first + share < n ? first + share : n;
  std::int32_t sum = 0;
  for (std::int64_t i = first; i < last; ++i) sum += counts[i];
  sums[own] = sum;
  __syncthreads();
  std::int32_t before = 0;
  for (unsigned t = 0; t < own; ++t) before += sums[t];
  for (std::int64_t i = first; i < last; ++i) {
    const std::int32_t here = counts[i];
    counts[i] = before;
    before += here;
  }
}

/// The block's rows to their places: behind those of its digit in blocks before it, and in threads before. The one
/// block of few rows needs no `places`.
__global__ void place_rows_kernel(SortPass sort, unsigned blocks, const std::int32_t* places, std::int32_t* to) {
  __shared__ std::int32_t place[digits * block_threads];
  const unsigned own = threadIdx.x;
  for (unsigned d = 0; d < digits; ++d) place[d * block_threads + own] = 0;
  for (std::int64_t i = sort.first(); i < sort.last(); ++i) {
    ++place[sort.digit_of(sort.row_at(i)) * block_threads + own];
  }
  __syncthreads();
  std::int32_t before = 0;
  if (own < digits && places != nullptr) before = places[own * blocks + blockIdx.x];
  if (own < digits && places == nullptr) {
    for (unsigned k = 0; k < own * block_threads; ++k) before += place[k];
  }
  __syncthreads();
  if (own < digits) {
    for (unsigned t = 0; t < block_threads; ++t) {
      const std::int32_t here = place[own * block_threads + t];
      place[own * block_threads + t] = before;
      before += here;
    }
  }
  __syncthreads();
  for (std::int64_t i = sort.first(); i < sort.last(); ++i) {
    const std::int32_t row = sort.row_at(i);
    to[place[sort.digit_of(row) * block_threads + own]++] = row;
  }
}

/// All rows, those of a word together and in their order: a part of the scratch.
const std::int32_t* rows_by_word(const std::int32_t* token, const plain::EmbeddingSizes& s, std::int32_t* scratch,
                                 cudaStream_t stream) {
  const int passes = digits_below(s.vocabulary);
  const unsigned blocks = SortShares{s.tokens}.blocks();
  std::int32_t *to = scratch, *other = scratch + s.tokens, *counts = scratch + 2 * s.tokens;
  const std::int32_t* from = nullptr;
  for (int pass = 0; pass < passes; ++pass) {
    const SortPass sort{token, from, s.tokens, pass};
    if (blocks > 1) {
      launch_blocks(count_digits_kernel, blocks, block_threads, stream, sort, blocks, counts);
      launch_blocks(places_of_counts_kernel, 1, block_threads, stream, std::int64_t{digits} * blocks, counts);
    }
    launch_blocks(place_rows_kernel, blocks, block_threads, stream, sort, blocks, blocks > 1 ? counts : nullptr, to);
    from = to;
    std::swap(to, other);
  }
  return from;
}

}  // namespace

std::int64_t embedding_gradient_scratch(const plain::EmbeddingSizes& s) {
  const std::int64_t counts = std::int64_t{digits} * SortShares{s.tokens}.blocks();
  return (2 * s.tokens + counts) * static_cast<std::int64_t>(sizeof(std::int32_t));
}

void max_pool(const Bf16* x, const PoolSizes& s, Bf16* y, cudaStream_t stream) {
  for_each(s.batch * s.rows * s.columns * s.channels, stream, [=] __device__(std::int64_t k) {
    const std::int64_t c = k % s.channels, j = k / s.channels % s.columns;
    const std::int64_t i = k / (s.channels * s.columns) % s.rows, n = k / (s.channels * s.columns * s.rows);
    y[k] = x[largest_in_window(x, s, n, i, j, c)];
  });
}

/// Every pixel asks the windows over it, in order, whether it is their largest.
template <class Number>
void max_pool_gradient(const Number* x, const Number* dy, const PoolSizes& s, Number* dx, cudaStream_t stream) {
  for_each(s.batch * s.height * s.width * s.channels, stream, [=] __device__(std::int64_t pixel) {
    const std::int64_t c = pixel % s.channels, w = pixel / s.channels % s.width;
    const std::int64_t h = pixel / (s.channels * s.width) % s.height, n = pixel / (s.channels * s.width * s.height);
    // Window i covers rows i stride - before ... + window - 1.
    const std::int64_t first_row = h + s.before - s.window + 1, first_column = w + s.before - s.window + 1;
    const std::int64_t from_i = first_row > 0 ? (first_row + s.stride - 1) / s.stride : 0;
    const std::int64_t from_j = first_column > 0 ? (first_column + s.stride - 1) / s.stride : 0;
    float sum = 0;
    for (std::int64_t i = from_i; i < s.rows && i * s.stride - s.before <= h; ++i) {
      for (std::int64_t j = from_j; j < s.columns && j * s.stride - s.before <= w; ++j) {
        if (largest_in_window(x, s, n, i, j, c) != pixel) continue;
        sum += as_float(dy[((n * s.rows + i) * s.columns + j) * s.channels + c]);
      }
    }
    dx[pixel] = stored_as<Number>(sum);
  });
}
template void max_pool_gradient(const float*, const float*, const PoolSizes&, float*, cudaStream_t);
template void max_pool_gradient(const Bf16*, const Bf16*, const PoolSizes&, Bf16*, cudaStream_t);

template <class Number>
void average_pool(const Number* x, std::int64_t batch, std::int64_t pixels, std::int64_t channels, Number* y,
                  cudaStream_t stream) {
  for_each(batch * channels, stream, [=] __device__(std::int64_t i) {
    const Number* own = x + i / channels * pixels * channels + i % channels;
    float sum = 0;
    for (std::int64_t p = 0; p < pixels; ++p) sum += as_float(own[p * channels]);
    y[i] = stored_as<Number>(sum / static_cast<float>(pixels));
  });
}
template void average_pool(const float*, std::int64_t, std::int64_t, std::int64_t, float*, cudaStream_t);
template void average_pool(const Bf16*, std::int64_t, std::int64_t, std::int64_t, Bf16*, cudaStream_t);

template <class Number>
void average_pool_gradient(const Number* dy, std::int64_t batch, std::int64_t pixels, std::int64_t channels, Number* dx,
                           cudaStream_t stream) {
  for_each(batch * pixels * channels, stream, [=] __device__(std::int64_t i) {
    const float g = as_float(dy[i / (pixels * channels) * channels + i % channels]);
    dx[i] = stored_as<Number>(g / static_cast<float>(pixels));
  });
}
template void average_pool_gradient(const float*, std::int64_t, std::int64_t, std::int64_t, float*, cudaStream_t);
template void average_pool_gradient(const Bf16*, std::int64_t, std::int64_t, std::int64_t, Bf16*, cudaStream_t);

template <class Number>
void embedding(const std::int32_t* token, const float* table, const float* positions, const plain::EmbeddingSizes& s,
               Number* y, cudaStream_t stream) {
  for_each(s.tokens * s.width, stream, [=] __device__(std::int64_t i) {
    const std::int64_t row = i / s.width, j = i % s.width;
    const float word = table[token[row] * s.width + j];
    y[i] = stored_as<Number>(positions == nullptr ? word : word + positions[row % s.sequence * s.width + j]);
  });
}
template void embedding(const std::int32_t*, const float*, const float*, const plain::EmbeddingSizes&, float*,
                        cudaStream_t);
template void embedding(const std::int32_t*, const float*, const float*, const plain::EmbeddingSizes&, Bf16*,
                        cudaStream_t);

/// Rows are sorted by their words; the first row of a word adds up all of them, in their order.
template <class Number>
void embedding_weight_gradient(const std::int32_t* token, const Number* dy, const plain::EmbeddingSizes& s,
                               void* scratch, float* dtable, float* dpositions, cudaStream_t stream) {
  const std::int32_t* order = rows_by_word(token, s, static_cast<std::int32_t*>(scratch), stream);
  for_each(s.vocabulary * s.width, stream, [=] __device__(std::int64_t i) { dtable[i] = 0; });
  for_each(s.tokens * s.width, stream, [=] __device__(std::int64_t i) {
    const std::int64_t place = i / s.width, j = i % s.width;
    const std::int32_t word = token[order[place]];
    if (place > 0 && token[order[place - 1]] == word) return;
    float sum = 0;
    for (std::int64_t p = place; p < s.tokens && token[order[p]] == word; ++p) {
      sum += as_float(dy[order[p] * s.width + j]);
    }
    dtable[word * s.width + j] = sum;
  });
  if (dpositions == nullptr) return;
  for_each(s.sequence * s.width, stream, [=] __device__(std::int64_t i) {
    float sum = 0;
    for (std::int64_t row = i / s.width; row < s.tokens; row += s.sequence) {
      sum += as_float(dy[row * s.width + i % s.width]);
    }
    dpositions[i] = sum;
  });
}
template void embedding_weight_gradient(const std::int32_t*, const float*, const plain::EmbeddingSizes&, void*, float*,
                                        float*, cudaStream_t);
template void embedding_weight_gradient(const std::int32_t*, const Bf16*, const plain::EmbeddingSizes&, void*, float*,
                                        float*, cudaStream_t);

template <class Number>
void cross_entropy_gradient(const float* probabilities, std::int64_t rows, std::int64_t classes, Number* dlogits,
                            cudaStream_t stream) {
  const float share = 1.0F / static_cast<float>(rows);
  for_each(rows * classes, stream, [=] __device__(std::int64_t i) {
    const bool is_label = i % classes == i / classes % classes;
    dlogits[i] = stored_as<Number>(probabilities[i] * share - (is_label ? share : 0));
  });
}
template void cross_entropy_gradient(const float*, std::int64_t, std::int64_t, float*, cudaStream_t);
template void cross_entropy_gradient(const float*, std::int64_t, std::int64_t, Bf16*, cudaStream_t);

void share_of_loss_gradient(const float* probabilities, const std::int32_t* labels, std::int64_t rows,
                            std::int64_t classes, float share, float* dlogits, cudaStream_t stream) {
  const float each = 1.0F / static_cast<float>(rows);
  for_each(rows * classes, stream, [=] __device__(std::int64_t i) {
    const bool is_label = i % classes == labels[i / classes];
    dlogits[i] = (probabilities[i] * each - (is_label ? each : 0)) * share;
  });
}

template <class Number>
void lstm_cell(const Number* gates, const Number* state, std::int64_t batch, std::int64_t width, Number* next,
               cudaStream_t stream) {
  for_each(batch * width, stream, [=] __device__(std::int64_t i) {
    const std::int64_t b = i / width, j = i % width;
    const LstmUnit u(gates + b * 4 * width, width, j, as_float(state[(2 * b + 1) * width + j]));
    next[2 * b * width + j] = stored_as<Number>(u.o * u.squashed);
    next[(2 * b + 1) * width + j] = stored_as<Number>(u.cell);
  });
}
template void lstm_cell(const float*, const float*, std::int64_t, std::int64_t, float*, cudaStream_t);
template void lstm_cell(const Bf16*, const Bf16*, std::int64_t, std::int64_t, Bf16*, cudaStream_t);

template <class Number>
void lstm_cell_gradient(const Number* dnext, const Number* gates, const Number* state, std::int64_t batch,
                        std::int64_t width, Number* dgates, cudaStream_t stream) {
  for_each(batch * width, stream, [=] __device__(std::int64_t i) {
    const std::int64_t b = i / width, j = i % width;
    const Number* above = dnext + b * 2 * width;
    const float before = as_float(state[(2 * b + 1) * width + j]), of_hidden = as_float(above[j]);
    const LstmUnit u(gates + b * 4 * width, width, j, before);
    const float dc = u.cell_gradient(of_hidden, as_float(above[width + j]));
    Number* out = dgates + b * 4 * width;
    out[j] = stored_as<Number>(dc * u.g * u.i * (1 - u.i));
    out[width + j] = stored_as<Number>(dc * before * u.f * (1 - u.f));
    out[2 * width + j] = stored_as<Number>(dc * u.i * (1 - u.g * u.g));
    out[3 * width + j] = stored_as<Number>(of_hidden * u.squashed * u.o * (1 - u.o));
  });
}
template void lstm_cell_gradient(const float*, const float*, const float*, std::int64_t, std::int64_t, float*,
                                 cudaStream_t);
template void lstm_cell_gradient(const Bf16*, const Bf16*, const Bf16*, std::int64_t, std::int64_t, Bf16*,
                                 cudaStream_t);

template <class Number>
void lstm_cell_half(const Number* dnext, const Number* gates, const Number* state, std::int64_t batch,
                    std::int64_t width, Number* dstate, cudaStream_t stream) {
  for_each(batch * width, stream, [=] __device__(std::int64_t i) {
    const std::int64_t b = i / width, j = i % width;
    const Number* above = dnext + b * 2 * width;
    const LstmUnit u(gates + b * 4 * width, width, j, as_float(state[(2 * b + 1) * width + j]));
    const float of_cell = u.cell_gradient(as_float(above[j]), as_float(above[width + j]));
    dstate[(2 * b + 1) * width + j] = stored_as<Number>(of_cell * u.f);
  });
}
template void lstm_cell_half(const float*, const float*, const float*, std::int64_t, std::int64_t, float*,
                             cudaStream_t);
template void lstm_cell_half(const Bf16*, const Bf16*, const Bf16*, std::int64_t, std::int64_t, Bf16*, cudaStream_t);

/// A thread a pair of the first part; of the other parts a thread copies as many pairs.
template <class Number>
void rotate(const Number* x, const RotationSizes& s, bool back, Number* y, cudaStream_t stream) {
  for_each(s.batch * s.sequence * s.columns / 2, stream, [=] __device__(std::int64_t i) {
    const std::int64_t half = s.half(), d = i % half, part = i / half, place = 2 * half * part + d;
    if (part % s.parts == 0)
      return PairRotation(s, part / (s.columns / s.size) % s.sequence, d, back).turn(x + place, y + place, half);
    y[place] = x[place];
    y[place + half] = x[place + half];
  });
}
template void rotate(const float*, const RotationSizes&, bool, float*, cudaStream_t);
template void rotate(const Bf16*, const RotationSizes&, bool, Bf16*, cudaStream_t);

template <class Number>
void gated_silu(const Number* gate, const Number* up, Number* y, std::int64_t n, cudaStream_t stream) {
  for_each(n, stream, [=] __device__(std::int64_t i) {
    y[i] = stored_as<Number>(plimsoll::gated_silu(as_float(gate[i]), as_float(up[i])));
  });
}
template void gated_silu(const float*, const float*, float*, std::int64_t, cudaStream_t);
template void gated_silu(const Bf16*, const Bf16*, Bf16*, std::int64_t, cudaStream_t);

template <class Number>
void gated_silu_gradient(const Number* gate, const Number* up, const Number* dy, Number* dgate, Number* dup,
                         std::int64_t n, cudaStream_t stream) {
  for_each(n, stream, [=] __device__(std::int64_t i) {
    const GateGradients of(as_float(gate[i]), as_float(up[i]), as_float(dy[i]));
    dgate[i] = stored_as<Number>(of.of_gate);
    dup[i] = stored_as<Number>(of.of_up);
  });
}
template void gated_silu_gradient(const float*, const float*, const float*, float*, float*, std::int64_t, cudaStream_t);
template void gated_silu_gradient(const Bf16*, const Bf16*, const Bf16*, Bf16*, Bf16*, std::int64_t, cudaStream_t);

}  // namespace plimsoll::launch
