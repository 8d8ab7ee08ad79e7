#pragma once
// The backward of each kind of forward: which ops make the gradients of its inputs, and what they read.

#include "validate/networks/backward_writer.h"

namespace plimsoll::op_gradients {

void linear(BackwardWriter&, const Op& forward);
void convolution(BackwardWriter&, const Op& forward);
void batch_norm(BackwardWriter&, const Op& forward);
void layer_norm(BackwardWriter&, const Op& forward);
void relu(BackwardWriter&, const Op& forward);
void gelu(BackwardWriter&, const Op& forward);
void softmax(BackwardWriter&, const Op& forward);
void max_pool(BackwardWriter&, const Op& forward);
void average_pool(BackwardWriter&, const Op& forward);
void add(BackwardWriter&, const Op& forward);
void attention_scores(BackwardWriter&, const Op& forward);
void attention_values(BackwardWriter&, const Op& forward);
void embedding(BackwardWriter&, const Op& forward);
void lstm_gates(BackwardWriter&, const Op& forward);
void lstm_cell(BackwardWriter&, const Op& forward);
void cross_entropy(BackwardWriter&, const Op& forward);

}  // namespace plimsoll::op_gradients
