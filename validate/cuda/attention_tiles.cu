// Fused attention in tiles: a thread has a query (in the last of the three kernels a key) with its sums in registers.
// What the block's threads all need next is read once, to shared memory. Each number is summed in the order of the
// formulas in validate/reference/fused_attention.h: the same bits as by these.

#include <algorithm>

#include "validate/cuda/grid.cuh"
#include "validate/cuda/launch.h"

namespace plimsoll::launch {
namespace {

constexpr int tile_threads = 64, tile_length = 32;  // rows of a block, and of what it reads at once

/// Rows of a head that a block has: `blockIdx.x` counts the blocks of a head, then the heads.
struct TilePlace {
  std::int64_t head, first, own;  ///< of all items; the block's first row; the thread's
  bool is_there;

  __device__ explicit TilePlace(std::int64_t rows)
      : head(blockIdx.x / blocks(rows)),
        first(blockIdx.x % blocks(rows) * tile_threads),
        own(first + threadIdx.x),
        is_there(own < rows) {}
  PLIMSOLL_ON_BOTH static std::int64_t blocks(std::int64_t rows) { return (rows + tile_threads - 1) / tile_threads; }
};

__device__ std::int64_t tile_end(std::int64_t begin, std::int64_t rows) {
  return begin + tile_length < rows ? begin + tile_length : rows;
}

/// A row of a head in registers, zeros behind its end and where there is none.
template <int most>
__device__ void hold(const float* row, std::int64_t size, bool is_there, float (&own)[most]) {
  UNROLLED for (int d = 0; d < most; ++d) own[d] = is_there && d < size ? read(row + d) : 0;
}

template <int most>
__device__ float held_product(const float (&own)[most], const float* other) {
  float sum = 0;
  UNROLLED for (int d = 0; d < most; ++d) sum += own[d] * other[d];
  return sum;
}

/// By all threads of a block: rows `begin` to `end`, each of two parts that are filled up with zeros. `place(row,
/// part)` is where a part begins.
template <int most, class Place>
__device__ void fill_tile(std::int64_t begin, std::int64_t end, std::int64_t size, float* tile, Place place) {
  __syncthreads();  // the last one is not in use any more
  for (std::int64_t i = threadIdx.x; i < (end - begin) * 2 * most; i += tile_threads) {
    const std::int64_t d = i % most;
    tile[i] = d < size ? read(place(begin + i / (2 * most), i / most % 2) + d) : 0;
  }
  __syncthreads();
}

/// Keys that no query of a block sees, nor any behind them, where rows count on from 0.
__device__ bool is_behind(const FusedSizes& s, std::int64_t key, std::int64_t last_query) {
  return s.key_at == nullptr && s.query_at == nullptr && key > last_query;
}

template <int most>
__global__ void attend_kernel(FusedSizes s, const float* q, const float* kv, float* mixed, float* sums) {
  __shared__ float tile[tile_length * 2 * most];
  const TilePlace place(s.queries);
  const FusedRow at(s, place.head / s.heads, place.head % s.heads, place.is_there ? place.own : 0);
  float own[most], out[most] = {}, largest = -INFINITY, sum = 0;
  hold(q + at.query(s, at.place), s.size, place.is_there, own);
  for (std::int64_t begin = 0; begin < s.keys; begin += tile_length) {
    if (is_behind(s, begin, place.first + tile_threads - 1)) break;
    const std::int64_t end = tile_end(begin, s.keys);
    fill_tile<most>(begin, end, s.size, tile,
                    [&](std::int64_t j, std::int64_t part) { return kv + at.key(s, j) + part * s.size; });
    for (std::int64_t j = begin; j < end; ++j) {
      if (!place.is_there || !s.sees(place.own, j)) continue;
      const float *key = tile + (j - begin) * 2 * most, *value = key + most;
      const float score = s.scale * held_product(own, key);
      if (score > largest) {  // what has been summed is of another largest one
        const float share = expf(largest - score);
        sum *= share;
        UNROLLED for (int d = 0; d < most; ++d) out[d] *= share;
        largest = score;
      }
      const float weight = expf(score - largest);
      sum += weight;
      UNROLLED for (int d = 0; d < most; ++d) out[d] += weight * value[d];
    }
  }
  if (!place.is_there) return;
  UNROLLED for (int d = 0; d < most; ++d) {
    if (d < s.size) mixed[at.query(s, place.own) + d] = sum > 0 ? out[d] / sum : out[d];
  }
  sums[at.sum(s, place.own)] = sum > 0 ? largest + logf(sum) : -INFINITY;
}

template <int most>
__global__ void query_gradient_kernel(FusedSizes s, FusedSaved of, float* dq) {
  __shared__ float tile[tile_length * 2 * most];
  const TilePlace place(s.queries);
  const FusedRow at(s, place.head / s.heads, place.head % s.heads, place.is_there ? place.own : 0);
  const std::int64_t row = at.query(s, at.place);
  float own[most], made[most], out[most] = {};
  hold(of.q + row, s.size, place.is_there, own);
  hold(of.dmixed + row, s.size, place.is_there, made);
  const float of_all = head_product(of.dmixed + row, of.mixed + row, s.size), sum = of.sums[at.sum(s, at.place)];
  for (std::int64_t begin = 0; begin < s.keys; begin += tile_length) {
    if (is_behind(s, begin, place.first + tile_threads - 1)) break;
    const std::int64_t end = tile_end(begin, s.keys);
    fill_tile<most>(begin, end, s.size, tile,
                    [&](std::int64_t j, std::int64_t part) { return of.kv + at.key(s, j) + part * s.size; });
    for (std::int64_t j = begin; j < end; ++j) {
      if (!place.is_there || !s.sees(place.own, j)) continue;
      const float *key = tile + (j - begin) * 2 * most, *value = key + most;
      const float weight = expf(s.scale * held_product(own, key) - sum);
      const float share = s.scale * (weight * (held_product(made, value) - of_all));
      UNROLLED for (int d = 0; d < most; ++d) out[d] += share * key[d];
    }
  }
  UNROLLED for (int d = 0; d < most; ++d) {
    if (place.is_there && d < s.size) dq[row + d] = out[d];
  }
}

/// Of a key and its value, from all heads of queries that share them.
template <int most>
__global__ void key_gradient_kernel(FusedSizes s, FusedSaved of, float* dkv) {
  __shared__ float tile[tile_length * 2 * most];
  __shared__ float of_all[tile_length], sums[tile_length];
  const TilePlace place(s.keys);
  const std::int64_t item = place.head / s.key_heads(), first_head = place.head % s.key_heads() * s.group;
  const std::int64_t row = FusedRow(s, item, first_head, 0).key(s, place.is_there ? place.own : 0);
  float key[most], value[most], of_key[most] = {}, of_value[most] = {};
  hold(of.kv + row, s.size, place.is_there, key);
  hold(of.kv + row + s.size, s.size, place.is_there, value);
  for (std::int64_t head = first_head; head < first_head + s.group; ++head) {
    const FusedRow at(s, item, head, 0);
    for (std::int64_t begin = 0; begin < s.queries; begin += tile_length) {
      const std::int64_t end = tile_end(begin, s.queries);
      if (is_behind(s, place.first, end - 1)) continue;
      fill_tile<most>(begin, end, s.size, tile, [&](std::int64_t i, std::int64_t part) {
        return (part == 0 ? of.q : of.dmixed) + at.query(s, i);
      });
      if (threadIdx.x < end - begin) {
        const std::int64_t i = begin + threadIdx.x;
        of_all[threadIdx.x] = head_product(of.dmixed + at.query(s, i), of.mixed + at.query(s, i), s.size);
        sums[threadIdx.x] = of.sums[at.sum(s, i)];
      }
      __syncthreads();
      for (std::int64_t i = begin; i < end; ++i) {
        if (!place.is_there || !s.sees(i, place.own)) continue;
        const float *query = tile + (i - begin) * 2 * most, *made = query + most;
        const float weight = expf(s.scale * held_product(key, query) - sums[i - begin]);
        const float gradient = weight * (held_product(value, made) - of_all[i - begin]);
        UNROLLED for (int d = 0; d < most; ++d) {
          of_key[d] += s.scale * gradient * query[d];
          of_value[d] += weight * made[d];
        }
      }
    }
  }
  UNROLLED for (int d = 0; d < most; ++d) {
    if (!place.is_there || d >= s.size) continue;
    dkv[row + d] = of_key[d];
    dkv[row + s.size + d] = of_value[d];
  }
}

unsigned tiles_of_heads(std::int64_t heads, std::int64_t rows) {
  return static_cast<unsigned>(heads * TilePlace::blocks(rows));
}

template <int most>
void attend_in_tiles(const FusedSizes& s, const float* q, const float* kv, float* mixed, float* sums,
                     cudaStream_t stream) {
  launch_blocks(attend_kernel<most>, tiles_of_heads(s.batch * s.heads, s.queries), tile_threads, stream, s, q, kv,
                mixed, sums);
}

template <int most>
void gradients_in_tiles(const FusedSizes& s, const FusedSaved& saved, float* dq, float* dkv, cudaStream_t stream) {
  launch_blocks(query_gradient_kernel<most>, tiles_of_heads(s.batch * s.heads, s.queries), tile_threads, stream, s,
                saved, dq);
  launch_blocks(key_gradient_kernel<most>, tiles_of_heads(s.batch * s.key_heads(), s.keys), tile_threads, stream, s,
                saved, dkv);
}

}  // namespace

/// Heads of more than 128 numbers do not fit registers: a thread a row, all in memory.
void fused_attention(const FusedSizes& s, const float* q, const float* kv, float* mixed, float* sums,
                     cudaStream_t stream) {
  if (s.size <= 64) return attend_in_tiles<64>(s, q, kv, mixed, sums, stream);
  if (s.size <= 128) return attend_in_tiles<128>(s, q, kv, mixed, sums, stream);
  for_each(s.rows(s.queries), stream, [=] __device__(std::int64_t row) { attend(s, q, kv, row, mixed, sums); });
}

void fused_attention_backward(const FusedSizes& s, const FusedSaved& saved, float* dq, float* dkv,
                              cudaStream_t stream) {
  if (s.size <= 64) return gradients_in_tiles<64>(s, saved, dq, dkv, stream);
  if (s.size <= 128) return gradients_in_tiles<128>(s, saved, dq, dkv, stream);
  for_each(s.rows(s.queries), stream, [=] __device__(std::int64_t row) { gradient_of_query(s, saved, row, dq); });
  for_each(s.rows_of_keys(), stream, [=] __device__(std::int64_t row) { gradient_of_key(s, saved, row, dkv); });
}

}  // namespace plimsoll::launch
