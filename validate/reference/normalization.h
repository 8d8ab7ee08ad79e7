#pragma once
// Plain loops of batch norm in training mode and layer norm: x is (rows, columns), normalised over the rows or over the
// columns. Statistics are summed in double.

#include <cstdint>

#include "validate/networks/bf16.h"
#include "validate/networks/kernel_arguments.h"

namespace plimsoll::plain {

/// Mean and variance of every column; `sums` has room for one double a column.
void column_statistics(const float* x, RowSizes, double* sums, float* mean, float* variance);
/// Mean and variance of every row.
void row_statistics(const float* x, RowSizes, float* mean, float* variance);
void row_statistics(const Bf16* x, RowSizes, float* mean, float* variance);

/// Moves running means, then running variances, towards a batch's.
void move_statistics(float* running, const float* mean, const float* variance, std::int64_t columns);

/// y = (x - mean) / sqrt(variance + epsilon) scale + shift, with statistics by column or by row.
void batch_norm(const float* x, const float* scale, const float* shift, RowSizes, const float* mean,
                const float* variance, float* y);
void layer_norm(const float* x, const float* scale, const float* shift, RowSizes, const float* mean,
                const float* variance, float* y);

/// dx of the above, through the statistics too.
void batch_norm_input_gradient(const float* x, const float* scale, const float* dy, RowSizes, const float* mean,
                               const float* variance, float* dx);
void layer_norm_input_gradient(const float* x, const float* scale, const float* dy, RowSizes, const float* mean,
                               const float* variance, float* dx);

void batch_norm_weight_gradient(const float* x, const float* dy, RowSizes, const float* mean, const float* variance,
                                float* dscale, float* dshift);
void layer_norm_weight_gradient(const float* x, const float* dy, RowSizes, const float* mean, const float* variance,
                                float* dscale, float* dshift);
void layer_norm_weight_gradient(const Bf16* x, const Bf16* dy, RowSizes, const float* mean, const float* variance,
                                float* dscale, float* dshift);

}  // namespace plimsoll::plain
