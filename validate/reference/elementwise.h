#pragma once
// Plain loops: number by number, and sums over rows.

#include <cstdint>

#include "validate/networks/bf16.h"
#include "validate/networks/fp8.h"
#include "validate/networks/update_step.h"

namespace plimsoll::plain {

void relu(const float* x, float* y, std::int64_t n);
void relu_gradient(const float* y, const float* dy, float* dx, std::int64_t n);
void gelu(const float* x, float* y, std::int64_t n);
void gelu_gradient(const float* x, const float* dy, float* dx, std::int64_t n);
void add(const float* a, const float* b, float* sum, std::int64_t n);
/// sum += part.
void accumulate(float* sum, const float* part, std::int64_t n);

/// Minus infinity for keys behind the query: rows of `keys` scores, of the last `queries` of as many positions in turn.
void mask_scores(float* scores, std::int64_t rows, std::int64_t queries, std::int64_t keys);
void mask_scores(Bf16* scores, std::int64_t rows, std::int64_t queries, std::int64_t keys);

/// x is (rows, columns): the sum of every column, in the order of the rows.
void column_sums(const float* x, std::int64_t rows, std::int64_t columns, float* sums);
void column_sums(const Bf16* x, std::int64_t rows, std::int64_t columns, float* sums);

void widen(const Bf16* x, std::int64_t n, float* y);
void narrow(const float* x, std::int64_t n, Bf16* y);

/// What is left of numbers that are rounded to 8 bits with the scale of their largest magnitude, and scaled back.
void through_8_bits(const float* x, std::int64_t n, In8Bits, float* y);
void through_8_bits(const Bf16* x, std::int64_t n, In8Bits, float* y);

/// (a, b) swapped in x (outer, a, b): y (outer, b, a).
void transpose(const float* x, std::int64_t outer, std::int64_t a, std::int64_t b, float* y);

void sgd(float* w, const float* g, std::int64_t n, const UpdateStep& = {});
void momentum(float* w, const float* g, float* v, std::int64_t n, const UpdateStep& = {});
void adam(float* w, const float* g, float* m, float* v, std::int64_t n, const UpdateStep& = {});

}  // namespace plimsoll::plain
