#pragma once
// Who makes which kernel: one maker for each kind of op that a GPU runs, listed by cuda_kernel.cpp.

#include "validate/cuda/cuda_kernel.h"

namespace plimsoll::cuda_kernels {

// --- product_kernels.cpp: cuBLASLt
CudaKernel linear(const Graph&, const Op&, const Libraries&);
CudaKernel linear_input_gradient(const Graph&, const Op&, const Libraries&);
CudaKernel linear_weight_gradient(const Graph&, const Op&, const Libraries&);
CudaKernel lstm_state_gradient(const Graph&, const Op&, const Libraries&);

// --- product_kernels.cpp, in fp8: of a linear layer, or of one of its gradients
CudaKernel product_in_fp8(const Graph&, const Op&, const Libraries&);

// --- attention_kernels.cpp: cuBLASLt
CudaKernel attention_scores(const Graph&, const Op&, const Libraries&);
CudaKernel attention_values(const Graph&, const Op&, const Libraries&);
CudaKernel attention_values_gradient(const Graph&, const Op&, const Libraries&);
CudaKernel attention_qkv_gradient(const Graph&, const Op&, const Libraries&);

// --- convolution_kernels.cpp: cuDNN
CudaKernel convolution(const Graph&, const Op&, const Libraries&);
CudaKernel convolution_input_gradient(const Graph&, const Op&, const Libraries&);
CudaKernel convolution_weight_gradient(const Graph&, const Op&, const Libraries&);
CudaKernel max_pool(const Graph&, const Op&, const Libraries&);

// --- own_kernels.cpp
CudaKernel relu(const Graph&, const Op&, const Libraries&);
CudaKernel relu_gradient(const Graph&, const Op&, const Libraries&);
CudaKernel gelu(const Graph&, const Op&, const Libraries&);
CudaKernel gelu_gradient(const Graph&, const Op&, const Libraries&);
CudaKernel add(const Graph&, const Op&, const Libraries&);
CudaKernel optimizer(const Graph&, const Op&, const Libraries&);
CudaKernel softmax(const Graph&, const Op&, const Libraries&);
CudaKernel softmax_gradient(const Graph&, const Op&, const Libraries&);
CudaKernel cross_entropy_gradient(const Graph&, const Op&, const Libraries&);
CudaKernel batch_norm(const Graph&, const Op&, const Libraries&);
CudaKernel batch_norm_input_gradient(const Graph&, const Op&, const Libraries&);
CudaKernel batch_norm_weight_gradient(const Graph&, const Op&, const Libraries&);
CudaKernel layer_norm(const Graph&, const Op&, const Libraries&);
CudaKernel layer_norm_input_gradient(const Graph&, const Op&, const Libraries&);
CudaKernel layer_norm_weight_gradient(const Graph&, const Op&, const Libraries&);
CudaKernel max_pool_gradient(const Graph&, const Op&, const Libraries&);
CudaKernel average_pool(const Graph&, const Op&, const Libraries&);
CudaKernel average_pool_gradient(const Graph&, const Op&, const Libraries&);
CudaKernel fused_attention(const Graph&, const Op&, const Libraries&);
CudaKernel fused_attention_backward(const Graph&, const Op&, const Libraries&);
CudaKernel embedding(const Graph&, const Op&, const Libraries&);
CudaKernel embedding_weight_gradient(const Graph&, const Op&, const Libraries&);
CudaKernel lstm_cell(const Graph&, const Op&, const Libraries&);
CudaKernel lstm_cell_gradient(const Graph&, const Op&, const Libraries&);

// --- decoder_kernels.cpp
CudaKernel root_norm(const Graph&, const Op&, const Libraries&);
CudaKernel root_norm_input_gradient(const Graph&, const Op&, const Libraries&);
CudaKernel root_norm_weight_gradient(const Graph&, const Op&, const Libraries&);
CudaKernel rotation(const Graph&, const Op&, const Libraries&);
CudaKernel rotation_gradient(const Graph&, const Op&, const Libraries&);
CudaKernel gated_silu(const Graph&, const Op&, const Libraries&);
CudaKernel gated_silu_gradient(const Graph&, const Op&, const Libraries&);

// --- expert_kernels.cpp
CudaKernel to_experts(const Graph&, const Op&, const Libraries&);
CudaKernel to_experts_gradient(const Graph&, const Op&, const Libraries&);
CudaKernel expert_product(const Graph&, const Op&, const Libraries&);
CudaKernel expert_product_input_gradient(const Graph&, const Op&, const Libraries&);
CudaKernel expert_product_weight_gradient(const Graph&, const Op&, const Libraries&);
CudaKernel from_experts(const Graph&, const Op&, const Libraries&);
CudaKernel from_experts_gradient(const Graph&, const Op&, const Libraries&);

}  // namespace plimsoll::cuda_kernels
