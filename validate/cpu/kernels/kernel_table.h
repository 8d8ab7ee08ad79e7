#pragma once
// Who makes which kernel: one maker for each kind of op that the CPU runs, listed by kernel.cpp.

#include "validate/cpu/kernels/kernel.h"

namespace plimsoll::cpu_kernels {

// --- product_kernels.cpp
Kernel linear(const Graph&, const Op&);
Kernel linear_input_gradient(const Graph&, const Op&);
Kernel linear_weight_gradient(const Graph&, const Op&);

// --- attention_kernels.cpp
Kernel attention_scores(const Graph&, const Op&);
Kernel attention_values(const Graph&, const Op&);
Kernel attention_values_gradient(const Graph&, const Op&);
Kernel attention_qkv_gradient(const Graph&, const Op&);
Kernel fused_attention(const Graph&, const Op&);
Kernel fused_attention_backward(const Graph&, const Op&);

// --- convolution_kernels.cpp
Kernel convolution(const Graph&, const Op&);
Kernel convolution_input_gradient(const Graph&, const Op&);
Kernel convolution_weight_gradient(const Graph&, const Op&);
Kernel max_pool(const Graph&, const Op&);
Kernel max_pool_gradient(const Graph&, const Op&);
Kernel average_pool(const Graph&, const Op&);
Kernel average_pool_gradient(const Graph&, const Op&);

// --- normalization_kernels.cpp
Kernel batch_norm(const Graph&, const Op&);
Kernel batch_norm_input_gradient(const Graph&, const Op&);
Kernel batch_norm_weight_gradient(const Graph&, const Op&);
Kernel layer_norm(const Graph&, const Op&);
Kernel layer_norm_input_gradient(const Graph&, const Op&);
Kernel layer_norm_weight_gradient(const Graph&, const Op&);

// --- elementwise_kernels.cpp
Kernel relu(const Graph&, const Op&);
Kernel relu_gradient(const Graph&, const Op&);
Kernel gelu(const Graph&, const Op&);
Kernel gelu_gradient(const Graph&, const Op&);
Kernel softmax(const Graph&, const Op&);
Kernel cross_entropy(const Graph&, const Op&);
Kernel softmax_gradient(const Graph&, const Op&);
Kernel add(const Graph&, const Op&);

// --- loss_kernels.cpp
Kernel embedding(const Graph&, const Op&);
Kernel embedding_weight_gradient(const Graph&, const Op&);
Kernel cross_entropy_gradient(const Graph&, const Op&);

// --- lstm_kernels.cpp
Kernel lstm_cell(const Graph&, const Op&);
Kernel lstm_cell_gradient(const Graph&, const Op&);
Kernel lstm_state_gradient(const Graph&, const Op&);

// --- decoder_kernels.cpp
Kernel root_norm(const Graph&, const Op&);
Kernel root_norm_input_gradient(const Graph&, const Op&);
Kernel root_norm_weight_gradient(const Graph&, const Op&);
Kernel rotation(const Graph&, const Op&);
Kernel rotation_gradient(const Graph&, const Op&);
Kernel gated_silu(const Graph&, const Op&);
Kernel gated_silu_gradient(const Graph&, const Op&);

// --- expert_kernels.cpp
Kernel to_experts(const Graph&, const Op&);
Kernel to_experts_gradient(const Graph&, const Op&);
Kernel expert_product(const Graph&, const Op&);
Kernel expert_product_input_gradient(const Graph&, const Op&);
Kernel expert_product_weight_gradient(const Graph&, const Op&);
Kernel from_experts(const Graph&, const Op&);
Kernel from_experts_gradient(const Graph&, const Op&);

// --- optimizer_kernels.cpp
Kernel optimizer(const Graph&, const Op&);

}  // namespace plimsoll::cpu_kernels
