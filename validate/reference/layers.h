#pragma once
// Plain loops of pooling, softmax, the two ends of a network, and of the LSTM cell.

#include <cstdint>

#include "validate/networks/bf16.h"
#include "validate/reference/formulas.h"

namespace plimsoll::plain {

/// The gradient of a window goes to its first largest pixel, found anew: nothing is kept for it.
void max_pool_gradient(const float* x, const float* dy, const PoolSizes&, float* dx);

/// Of each channel's whole picture: x is (batch, pixels, channels), y (batch, channels).
void average_pool(const float* x, std::int64_t batch, std::int64_t pixels, std::int64_t channels, float* y);
void average_pool_gradient(const float* dy, std::int64_t batch, std::int64_t pixels, std::int64_t channels, float* dx);

struct EmbeddingSizes {
  std::int64_t tokens, sequence, width, vocabulary;
};
/// y[row] = table[token] + positions[row modulo the sequence]; without positions the table's alone.
void embedding(const std::int32_t* token, const float* table, const float* positions, const EmbeddingSizes&, float* y);
void embedding(const std::int32_t* token, const float* table, const float* positions, const EmbeddingSizes&, Bf16* y);
void embedding_weight_gradient(const std::int32_t* token, const float* dy, const EmbeddingSizes&, float* dtable,
                               float* dpositions);
void embedding_weight_gradient(const std::int32_t* token, const Bf16* dy, const EmbeddingSizes&, float* dtable,
                               float* dpositions);

/// Of every row; minus infinity becomes 0.
void softmax(const float* x, std::int64_t rows, std::int64_t columns, float* y);
void softmax_gradient(const float* y, const float* dy, std::int64_t rows, std::int64_t columns, float* dx);

/// Of the logits: (probability - [column is the row's label]) / (rows that the mean is over). `labels`: of the rows;
/// null: row r has the label r modulo the classes.
void cross_entropy_gradient(const float* probabilities, std::int64_t rows, std::int64_t classes,
                            const std::int32_t* labels, std::int64_t mean_over, float* dlogits);
void cross_entropy_gradient(const float* probabilities, std::int64_t rows, std::int64_t classes,
                            const std::int32_t* labels, std::int64_t mean_over, Bf16* dlogits);

/// One step of a long short-term memory: state is (batch, hidden | cell), gates (batch, input | forget | candidate |
/// output) before their sigmoid and tanh. cell' = f cell + i g, hidden' = o tanh(cell').
void lstm_cell(const float* gates, const float* state, std::int64_t batch, std::int64_t width, float* next);
/// Of the gates before sigmoid and tanh.
void lstm_cell_gradient(const float* dnext, const float* gates, const float* state, std::int64_t batch,
                        std::int64_t width, float* dgates);
/// The cell half of the state's gradient: what reaches the new cell, times the forget gate.
void lstm_cell_half(const float* dnext, const float* gates, const float* state, std::int64_t batch, std::int64_t width,
                    float* dstate);

}  // namespace plimsoll::plain
