// Pooling, fused attention, the two ends of a network and the LSTM cell: what validate/reference/layers.cpp does. Where
// that scatters, these gather, so that every number is one thread's sum in a fixed order.

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

/// One block sorts the rows by their words, a digit a pass from the lowest one; rows of equal digits keep their order.
/// Pass 0 writes to `even`, pass 1 to `odd`, and so on.
__global__ void sort_rows_kernel(const std::int32_t* token, std::int64_t rows, int passes, std::int32_t* even,
                                 std::int32_t* odd) {
  __shared__ std::int32_t place[digits * block_threads];  // by digit, then thread: how many, then where the next goes
  __shared__ std::int32_t sums[block_threads];
  const unsigned own = threadIdx.x;
  const std::int64_t share = (rows + block_threads - 1) / block_threads;
  const std::int64_t first = own * share, last = first + share < rows ? first + share : rows;
  for (int pass = 0; pass < passes; ++pass) {
    const std::int32_t* from = pass % 2 == 0 ? odd : even;
    std::int32_t* to = pass % 2 == 0 ? even : odd;
    const auto row_at = [=](std::int64_t i) { return pass == 0 ? static_cast<std::int32_t>(i) : from[i]; };
    const auto digit_of = [=](std::int32_t row) {
      return (static_cast<unsigned>(token[row]) >> static_cast<unsigned>(pass * digit_bits)) & (digits - 1);
    };
    for (unsigned d = 0; d < digits; ++d) place[d * block_threads + own] = 0;
    for (std::int64_t i = first; i < last; ++i) ++place[digit_of(row_at(i)) * block_threads + own];
    __syncthreads();
    // Running sums: each thread adds up `digits` neighbours, one thread the sums of all.
    std::int32_t sum = 0;
    for (unsigned k = 0; k < digits; ++k) sum += place[own * digits + k];
    sums[own] = sum;
    __syncthreads();
    if (own == 0) {
      std::int32_t before = 0;
      for (unsigned t = 0; t < block_threads; ++t) {
        const std::int32_t here = sums[t];
        sums[t] = before;
        before += here;
      }
    }
    __syncthreads();
    std::int32_t before = sums[own];
    for (unsigned k = 0; k < digits; ++k) {
      const std::int32_t here = place[own * digits + k];
      place[own * digits + k] = before;
      before += here;
    }
    __syncthreads();
    for (std::int64_t i = first; i < last; ++i) {
      const std::int32_t row = row_at(i);
      to[place[digit_of(row) * block_threads + own]++] = row;
    }
    __syncthreads();
  }
}

/// All rows, those of a word together and in their order: a part of the scratch.
const std::int32_t* rows_by_word(const std::int32_t* token, const plain::EmbeddingSizes& s, std::int32_t* scratch,
                                 cudaStream_t stream) {
  const int passes = digits_below(s.vocabulary);
  std::int32_t *even = scratch, *odd = scratch + s.tokens;
  launch_blocks(sort_rows_kernel, 1, block_threads, stream, token, s.tokens, passes, even, odd);
  return passes % 2 == 0 ? odd : even;
}

}  // namespace

std::int64_t embedding_gradient_scratch(const plain::EmbeddingSizes& s) {
  return 2 * s.tokens * static_cast<std::int64_t>(sizeof(std::int32_t));
}

/// Every pixel asks the windows over it, in order, whether it is their largest.
void max_pool_gradient(const float* x, const float* dy, const PoolSizes& s, float* dx, cudaStream_t stream) {
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
        sum += dy[((n * s.rows + i) * s.columns + j) * s.channels + c];
      }
    }
    dx[pixel] = sum;
  });
}

void average_pool(const float* x, std::int64_t batch, std::int64_t pixels, std::int64_t channels, float* y,
                  cudaStream_t stream) {
  for_each(batch * channels, stream, [=] __device__(std::int64_t i) {
    const float* own = x + i / channels * pixels * channels + i % channels;
    float sum = 0;
    for (std::int64_t p = 0; p < pixels; ++p) sum += own[p * channels];
    y[i] = sum / static_cast<float>(pixels);
  });
}

void average_pool_gradient(const float* dy, std::int64_t batch, std::int64_t pixels, std::int64_t channels, float* dx,
                           cudaStream_t stream) {
  for_each(batch * pixels * channels, stream, [=] __device__(std::int64_t i) {
    dx[i] = dy[i / (pixels * channels) * channels + i % channels] / static_cast<float>(pixels);
  });
}

void fused_attention(const FusedSizes& s, const float* q, const float* kv, float* mixed, float* sums,
                     cudaStream_t stream) {
  for_each(s.rows(s.queries), stream, [=] __device__(std::int64_t row) { attend(s, q, kv, row, mixed, sums); });
}

void fused_attention_backward(const FusedSizes& s, const FusedSaved& saved, float* dq, float* dkv,
                              cudaStream_t stream) {
  for_each(s.rows(s.queries), stream, [=] __device__(std::int64_t row) { gradient_of_query(s, saved, row, dq); });
  for_each(s.rows(s.keys), stream, [=] __device__(std::int64_t row) { gradient_of_key(s, saved, row, dkv); });
}

void embedding(const std::int32_t* token, const float* table, const float* positions, const plain::EmbeddingSizes& s,
               float* y, cudaStream_t stream) {
  for_each(s.tokens * s.width, stream, [=] __device__(std::int64_t i) {
    const std::int64_t row = i / s.width, j = i % s.width;
    y[i] = table[token[row] * s.width + j] + positions[row % s.sequence * s.width + j];
  });
}

/// Rows are sorted by their words; the first row of a word adds up all of them, in their order.
void embedding_weight_gradient(const std::int32_t* token, const float* dy, const plain::EmbeddingSizes& s,
                               void* scratch, float* dtable, float* dpositions, cudaStream_t stream) {
  const std::int32_t* order = rows_by_word(token, s, static_cast<std::int32_t*>(scratch), stream);
  for_each(s.vocabulary * s.width, stream, [=] __device__(std::int64_t i) { dtable[i] = 0; });
  for_each(s.tokens * s.width, stream, [=] __device__(std::int64_t i) {
    const std::int64_t place = i / s.width, j = i % s.width;
    const std::int32_t word = token[order[place]];
    if (place > 0 && token[order[place - 1]] == word) return;
    float sum = 0;
    for (std::int64_t p = place; p < s.tokens && token[order[p]] == word; ++p) sum += dy[order[p] * s.width + j];
    dtable[word * s.width + j] = sum;
  });
  for_each(s.sequence * s.width, stream, [=] __device__(std::int64_t i) {
    float sum = 0;
    for (std::int64_t row = i / s.width; row < s.tokens; row += s.sequence) sum += dy[row * s.width + i % s.width];
    dpositions[i] = sum;
  });
}

void cross_entropy_gradient(const float* probabilities, std::int64_t rows, std::int64_t classes, float* dlogits,
                            cudaStream_t stream) {
  const float share = 1.0F / static_cast<float>(rows);
  for_each(rows * classes, stream, [=] __device__(std::int64_t i) {
    const bool is_label = i % classes == i / classes % classes;
    dlogits[i] = probabilities[i] * share - (is_label ? share : 0);
  });
}

void lstm_cell(const float* gates, const float* state, std::int64_t batch, std::int64_t width, float* next,
               cudaStream_t stream) {
  for_each(batch * width, stream, [=] __device__(std::int64_t i) {
    const std::int64_t b = i / width, j = i % width;
    const LstmUnit u(gates + b * 4 * width, width, j, state[(2 * b + 1) * width + j]);
    next[2 * b * width + j] = u.o * u.squashed;
    next[(2 * b + 1) * width + j] = u.cell;
  });
}

void lstm_cell_gradient(const float* dnext, const float* gates, const float* state, std::int64_t batch,
                        std::int64_t width, float* dgates, cudaStream_t stream) {
  for_each(batch * width, stream, [=] __device__(std::int64_t i) {
    const std::int64_t b = i / width, j = i % width;
    const float* above = dnext + b * 2 * width;
    const float before = state[(2 * b + 1) * width + j];
    const LstmUnit u(gates + b * 4 * width, width, j, before);
    const float dc = u.cell_gradient(above[j], above[width + j]);
    float* out = dgates + b * 4 * width;
    out[j] = dc * u.g * u.i * (1 - u.i);
    out[width + j] = dc * before * u.f * (1 - u.f);
    out[2 * width + j] = dc * u.i * (1 - u.g * u.g);
    out[3 * width + j] = above[j] * u.squashed * u.o * (1 - u.o);
  });
}

void lstm_cell_half(const float* dnext, const float* gates, const float* state, std::int64_t batch, std::int64_t width,
                    float* dstate, cudaStream_t stream) {
  for_each(batch * width, stream, [=] __device__(std::int64_t i) {
    const std::int64_t b = i / width, j = i % width;
    const float* above = dnext + b * 2 * width;
    const LstmUnit u(gates + b * 4 * width, width, j, state[(2 * b + 1) * width + j]);
    dstate[(2 * b + 1) * width + j] = u.cell_gradient(above[j], above[width + j]) * u.f;
  });
}

}  // namespace plimsoll::launch
