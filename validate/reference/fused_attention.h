#pragma once
// Causal attention without whole weights: of each query the numbers it mixes, and the logarithm of the sum of its
// softmax, by which blocks of keys are put together and from which the backward makes weights anew.
// Source: Dao et al., "FlashAttention: Fast and Memory-Efficient Exact Attention", 2022.

#include <cmath>
#include <cstdint>

#include "sim/core/graph.h"
#include "validate/reference/formulas.h"

namespace plimsoll {

/// q, mixed and their gradients are (batch, queries, heads x size); kv is (batch, keys, heads x 2 x size), a head's key
/// and value one after the other; sums are (batch, heads, queries). A query sees keys up to its own position.
/// Where `group` heads of queries in turn share a head of keys and values, kv has so many times fewer heads.
/// Source: Ainslie et al., "GQA: Training Generalized Multi-Query Transformer Models from Multi-Head Checkpoints",
/// 2023.
struct FusedSizes {
  std::int64_t batch = 1, heads = 1, size = 1, queries = 1, keys = 1;
  float scale = 1;
  const std::int32_t *query_at = nullptr, *key_at = nullptr;  ///< positions; null: one after the other
  std::int64_t group = 1;

  /// Of all heads, each with so many.
  PLIMSOLL_ON_BOTH std::int64_t rows(std::int64_t each) const { return batch * heads * each; }
  PLIMSOLL_ON_BOTH std::int64_t key_heads() const { return heads / group; }
  PLIMSOLL_ON_BOTH std::int64_t rows_of_keys() const { return batch * key_heads() * keys; }
  PLIMSOLL_ON_BOTH bool sees(std::int64_t query, std::int64_t key) const {
    return (key_at == nullptr ? key : key_at[key]) <= (query_at == nullptr ? query : query_at[query]);
  }
};

/// Of an op, forward or backward: its own operands in the order of its kind.
FusedSizes fused_sizes(const Graph&, const Op&);

/// What a backward reads.
struct FusedSaved {
  const float *dmixed, *q, *kv, *mixed, *sums;
};

/// Where a row of a head lies: its first number in q, in kv, and in sums.
struct FusedRow {
  std::int64_t item, head, place, first_key;

  PLIMSOLL_ON_BOTH FusedRow(const FusedSizes& s, std::int64_t row, std::int64_t each)
      : FusedRow(s, row / (s.heads * each), row / each % s.heads, row % each) {}
  PLIMSOLL_ON_BOTH FusedRow(const FusedSizes& s, std::int64_t of_item, std::int64_t of_head, std::int64_t at)
      : item(of_item),
        head(of_head),
        place(at),
        first_key((of_item * s.keys * s.key_heads() + of_head / s.group) * 2 * s.size) {}

  PLIMSOLL_ON_BOTH std::int64_t query(const FusedSizes& s, std::int64_t i) const {
    return ((item * s.queries + i) * s.heads + head) * s.size;
  }
  PLIMSOLL_ON_BOTH std::int64_t key(const FusedSizes& s, std::int64_t j) const {
    return first_key + j * s.key_heads() * 2 * s.size;
  }
  PLIMSOLL_ON_BOTH std::int64_t sum(const FusedSizes& s, std::int64_t i) const {
    return (item * s.heads + head) * s.queries + i;
  }
};

PLIMSOLL_ON_BOTH inline float head_product(const float* a, const float* b, std::int64_t n) {
  float sum = 0;
  for (std::int64_t d = 0; d < n; ++d) sum += a[d] * b[d];
  return sum;
}

/// One query of one head: nothing and minus infinity where it sees no key.
PLIMSOLL_ON_BOTH inline void attend(const FusedSizes& s, const float* q, const float* kv, std::int64_t row,
                                    float* mixed, float* sums) {
  const FusedRow at(s, row, s.queries);
  const float* query = q + at.query(s, at.place);
  float* out = mixed + at.query(s, at.place);
  float largest = -INFINITY, sum = 0;
  for (std::int64_t d = 0; d < s.size; ++d) out[d] = 0;
  for (std::int64_t j = 0; j < s.keys; ++j) {
    if (!s.sees(at.place, j)) continue;
    const float* key = kv + at.key(s, j);
    const float score = s.scale * head_product(query, key, s.size);
    if (score > largest) {  // what has been summed is of another largest one
      const float share = std::exp(largest - score);
      sum *= share;
      for (std::int64_t d = 0; d < s.size; ++d) out[d] *= share;
      largest = score;
    }
    const float weight = std::exp(score - largest);
    sum += weight;
    for (std::int64_t d = 0; d < s.size; ++d) out[d] += weight * key[s.size + d];
  }
  for (std::int64_t d = 0; d < s.size && sum > 0; ++d) out[d] /= sum;
  sums[row] = sum > 0 ? largest + std::log(sum) : -INFINITY;
}

/// A weight, and the gradient of its score.
struct FusedPair {
  float weight, gradient;

  PLIMSOLL_ON_BOTH FusedPair(const FusedSizes& s, const FusedSaved& of, const FusedRow& at, std::int64_t i,
                             std::int64_t j)
      : weight(0), gradient(0) {
    const float *query = of.q + at.query(s, i), *key = of.kv + at.key(s, j), *made = of.dmixed + at.query(s, i);
    weight = std::exp(s.scale * head_product(query, key, s.size) - of.sums[at.sum(s, i)]);
    gradient =
        weight * (head_product(made, key + s.size, s.size) - head_product(made, of.mixed + at.query(s, i), s.size));
  }
};

PLIMSOLL_ON_BOTH inline void gradient_of_query(const FusedSizes& s, const FusedSaved& of, std::int64_t row, float* dq) {
  const FusedRow at(s, row, s.queries);
  float* out = dq + at.query(s, at.place);
  for (std::int64_t d = 0; d < s.size; ++d) out[d] = 0;
  for (std::int64_t j = 0; j < s.keys; ++j) {
    if (!s.sees(at.place, j)) continue;
    const float share = s.scale * FusedPair(s, of, at, at.place, j).gradient;
    for (std::int64_t d = 0; d < s.size; ++d) out[d] += share * of.kv[at.key(s, j) + d];
  }
}

/// Of a key and its value, from all heads of queries that share them.
PLIMSOLL_ON_BOTH inline void gradient_of_key(const FusedSizes& s, const FusedSaved& of, std::int64_t row, float* dkv) {
  const std::int64_t item = row / (s.key_heads() * s.keys), key_head = row / s.keys % s.key_heads();
  for (std::int64_t head = key_head * s.group; head < (key_head + 1) * s.group; ++head) {
    const FusedRow at(s, item, head, row % s.keys);
    float* out = dkv + at.key(s, at.place);
    for (std::int64_t d = 0; d < 2 * s.size && head == key_head * s.group; ++d) out[d] = 0;
    for (std::int64_t i = 0; i < s.queries; ++i) {
      if (!s.sees(i, at.place)) continue;
      const FusedPair pair(s, of, at, i, at.place);
      for (std::int64_t d = 0; d < s.size; ++d) {
        out[d] += s.scale * pair.gradient * of.q[at.query(s, i) + d];
        out[s.size + d] += pair.weight * of.dmixed[at.query(s, i) + d];
      }
    }
  }
}

}  // namespace plimsoll

namespace plimsoll::plain {

void fused_attention(const FusedSizes&, const float* q, const float* kv, float* mixed, float* sums);
void fused_attention_backward(const FusedSizes&, const FusedSaved&, float* dq, float* dkv);

/// What the same queries make with two blocks of keys, put together by their sums, in place of the first.
void merge_attention(const FusedSizes&, float* mixed, float* sums, const float* other, const float* other_sums);

}  // namespace plimsoll::plain
