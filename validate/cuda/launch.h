#pragma once
// Our own CUDA kernels, one function a launch: what the plain loops of the same names in validate/reference do, on
// device memory, in stream order. Every sum is taken in a fixed order, so that the same input gives the same bits.

#include <cuda_runtime_api.h>

#include "validate/reference/compression.h"
#include "validate/reference/decoder_layers.h"
#include "validate/reference/experts.h"
#include "validate/reference/fused_attention.h"
#include "validate/reference/layers.h"
#include "validate/reference/normalization.h"

namespace plimsoll {

/// Attention's query, key or value, or what has their shape, of all heads side by side: number d of head h of a row
/// lies at `offset + h size + d` of the row, which has `leading` numbers.
struct HeadRows {
  std::int64_t batch, sequence, heads, size, leading, offset;
};

}  // namespace plimsoll

namespace plimsoll::launch {

// --- elementwise.cu
void relu(const float* x, float* y, std::int64_t n, cudaStream_t);
void relu_gradient(const float* y, const float* dy, float* dx, std::int64_t n, cudaStream_t);
void gelu(const float* x, float* y, std::int64_t n, cudaStream_t);
void gelu_gradient(const float* x, const float* dy, float* dx, std::int64_t n, cudaStream_t);
void add(const float* a, const float* b, float* sum, std::int64_t n, cudaStream_t);
/// The same of bf16, computed in fp32 and rounded once.
void relu(const Bf16* x, Bf16* y, std::int64_t n, cudaStream_t);
void relu_gradient(const Bf16* y, const Bf16* dy, Bf16* dx, std::int64_t n, cudaStream_t);
void gelu(const Bf16* x, Bf16* y, std::int64_t n, cudaStream_t);
void gelu_gradient(const Bf16* x, const Bf16* dy, Bf16* dx, std::int64_t n, cudaStream_t);
void add(const Bf16* a, const Bf16* b, Bf16* sum, std::int64_t n, cudaStream_t);
void widen(const Bf16* x, std::int64_t n, float* y, cudaStream_t);
void narrow(const float* x, std::int64_t n, Bf16* y, cudaStream_t);
/// To bf16 and back.
void round_numbers(const float* x, std::int64_t n, float* y, cudaStream_t);
void accumulate(float* sum, const float* part, std::int64_t n, cudaStream_t);
void mask_scores(float* scores, std::int64_t rows, std::int64_t sequence, cudaStream_t);
void transpose(const float* x, std::int64_t outer, std::int64_t a, std::int64_t b, float* y, cudaStream_t);
/// `heads` is (batch, heads, sequence, size).
void gather_heads(const float* x, const HeadRows&, float* heads, cudaStream_t);
void scatter_heads(const float* heads, const HeadRows&, float* x, cudaStream_t);
void sgd(float* w, const float* g, std::int64_t n, cudaStream_t);
void momentum(float* w, const float* g, float* v, std::int64_t n, cudaStream_t);
void adam(float* w, const float* g, float* m, float* v, std::int64_t n, cudaStream_t);

// --- normalization.cu: statistics are found anew from x each time; `scratch` as large as they say
std::int64_t column_sums_scratch(RowSizes);  ///< bytes, as all of these
void column_sums(const float* x, RowSizes, void* scratch, float* sums, cudaStream_t);
void column_sums(const Bf16* x, RowSizes, void* scratch, float* sums, cudaStream_t);

std::int64_t column_norm_scratch(RowSizes);
/// `running`: statistics to move along, or null.
void batch_norm(const float* x, const float* scale, const float* shift, RowSizes, void* scratch, float* running,
                float* y, cudaStream_t);
void batch_norm_input_gradient(const float* x, const float* scale, const float* dy, RowSizes, void* scratch, float* dx,
                               cudaStream_t);
void batch_norm_weight_gradient(const float* x, const float* dy, RowSizes, void* scratch, float* dscale, float* dshift,
                                cudaStream_t);

void layer_norm(const float* x, const float* scale, const float* shift, RowSizes, float* y, cudaStream_t);
void layer_norm_input_gradient(const float* x, const float* scale, const float* dy, RowSizes, float* dx, cudaStream_t);
std::int64_t layer_norm_weight_scratch(RowSizes);
void layer_norm_weight_gradient(const float* x, const float* dy, RowSizes, void* scratch, float* dscale, float* dshift,
                                cudaStream_t);

void root_norm(const float* x, const float* scale, RowSizes, float* y, cudaStream_t);
void root_norm_input_gradient(const float* x, const float* scale, const float* dy, RowSizes, float* dx, cudaStream_t);
std::int64_t root_norm_weight_scratch(RowSizes);
void root_norm_weight_gradient(const float* x, const float* dy, RowSizes, void* scratch, float* dscale, cudaStream_t);

void softmax(const float* x, RowSizes, float* y, cudaStream_t);
void softmax_gradient(const float* y, const float* dy, RowSizes, float* dx, cudaStream_t);

// --- decoder.cu
void rotate(const float* x, const RotationSizes&, bool back, float* y, cudaStream_t);
void gated_silu(const float* gate, const float* up, float* y, std::int64_t n, cudaStream_t);
void gated_silu_gradient(const float* gate, const float* up, const float* dy, float* dgate, float* dup, std::int64_t n,
                         cudaStream_t);

// --- mixture.cu
void choose(const float* chances, const ExpertSizes&, const ExpertChoice&, cudaStream_t);
void send_to_experts(const ExpertSizes&, const ExpertChoice&, const float* x, float* rows, cudaStream_t);
void bring_from_experts(const ExpertSizes&, const ExpertChoice&, const float* drows, float* dx, cudaStream_t);
void mix_experts(const ExpertSizes&, const ExpertChoice&, const float* rows, const float* chances, float* y,
                 cudaStream_t);
void mix_experts_gradient(const ExpertSizes&, const ExpertChoice&, const float* dy, const float* rows,
                          const float* chances, float* drows, float* dchances, cudaStream_t);

// --- layers.cu
void max_pool_gradient(const float* x, const float* dy, const PoolSizes&, float* dx, cudaStream_t);
void average_pool(const float* x, std::int64_t batch, std::int64_t pixels, std::int64_t channels, float* y,
                  cudaStream_t);
void average_pool_gradient(const float* dy, std::int64_t batch, std::int64_t pixels, std::int64_t channels, float* dx,
                           cudaStream_t);
void fused_attention(const FusedSizes&, const float* q, const float* kv, float* mixed, float* sums, cudaStream_t);
void fused_attention_backward(const FusedSizes&, const FusedSaved&, float* dq, float* dkv, cudaStream_t);
void embedding(const std::int32_t* token, const float* table, const float* positions, const plain::EmbeddingSizes&,
               float* y, cudaStream_t);
std::int64_t embedding_gradient_scratch(const plain::EmbeddingSizes&);
void embedding_weight_gradient(const std::int32_t* token, const float* dy, const plain::EmbeddingSizes&, void* scratch,
                               float* dtable, float* dpositions, cudaStream_t);
void cross_entropy_gradient(const float* probabilities, std::int64_t rows, std::int64_t classes, float* dlogits,
                            cudaStream_t);
void lstm_cell(const float* gates, const float* state, std::int64_t batch, std::int64_t width, float* next,
               cudaStream_t);
void lstm_cell_gradient(const float* dnext, const float* gates, const float* state, std::int64_t batch,
                        std::int64_t width, float* dgates, cudaStream_t);
void lstm_cell_half(const float* dnext, const float* gates, const float* state, std::int64_t batch, std::int64_t width,
                    float* dstate, cudaStream_t);

// --- compression.cu
void block_means(const float* x, const BlockSizes&, float* means, cudaStream_t);
void expand_blocks(const float* means, const BlockSizes&, float* x, cudaStream_t);
void quantize(const float* x, const QuantizeSizes&, Rounding, std::uint64_t seed, float* scales, std::uint8_t* packed,
              cudaStream_t);
void dequantize(const std::uint8_t* packed, const float* scales, const QuantizeSizes&, float* x, cudaStream_t);

}  // namespace plimsoll::launch
