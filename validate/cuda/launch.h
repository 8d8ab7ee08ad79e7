#pragma once
// Our own CUDA kernels, one function a launch: what the plain loops of the same names in validate/reference do, on
// device memory, in stream order. Every sum is taken in a fixed order, so that the same input gives the same bits.

#include <cuda_runtime_api.h>

#include "validate/networks/fp8.h"
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

// `Number`: float, or Bf16, computed in fp32 and rounded once.

// --- elementwise.cu
template <class Number>
void relu(const Number* x, Number* y, std::int64_t n, cudaStream_t);
template <class Number>
void relu_gradient(const Number* y, const Number* dy, Number* dx, std::int64_t n, cudaStream_t);
template <class Number>
void gelu(const Number* x, Number* y, std::int64_t n, cudaStream_t);
template <class Number>
void gelu_gradient(const Number* x, const Number* dy, Number* dx, std::int64_t n, cudaStream_t);
template <class Number>
void add(const Number* a, const Number* b, Number* sum, std::int64_t n, cudaStream_t);
void widen(const Bf16* x, std::int64_t n, float* y, cudaStream_t);
void narrow(const float* x, std::int64_t n, Bf16* y, cudaStream_t);
/// To bf16 and back.
void round_numbers(const float* x, std::int64_t n, float* y, cudaStream_t);
void accumulate(float* sum, const float* part, std::int64_t n, cudaStream_t);
template <class Number>
void mask_scores(Number* scores, std::int64_t rows, std::int64_t sequence, cudaStream_t);
template <class From, class To>
void transpose(const From* x, std::int64_t outer, std::int64_t a, std::int64_t b, To* y, cudaStream_t);
/// `heads` is (batch, heads, sequence, size).
template <class Number>
void gather_heads(const Number* x, const HeadRows&, Number* heads, cudaStream_t);
template <class Number>
void scatter_heads(const Number* heads, const HeadRows&, Number* x, cudaStream_t);
void sgd(float* w, const float* g, std::int64_t n, cudaStream_t);
void momentum(float* w, const float* g, float* v, std::int64_t n, cudaStream_t);
void adam(float* w, const float* g, float* m, float* v, std::int64_t n, cudaStream_t);

// --- elementwise.cu, in 8 bits
std::int64_t scaling_scratch();  ///< bytes
/// Rows of numbers to 8 bits with the scale of their largest magnitude, or `turned`: y is (columns, rows). `scaling`
/// begins with what scales back.
template <class Number, class Eight>
void scale_to_8_bits(const Number* x, RowSizes, bool turned, float* scaling, Eight* y, cudaStream_t);

// --- normalization.cu: statistics are found anew from x each time; `scratch` as large as they say
std::int64_t column_sums_scratch(RowSizes);  ///< bytes, as all of these
template <class Number>
void column_sums(const Number* x, RowSizes, void* scratch, float* sums, cudaStream_t);

std::int64_t column_norm_scratch(RowSizes);
/// `running`: statistics to move along, or null.
template <class Number>
void batch_norm(const Number* x, const float* scale, const float* shift, RowSizes, void* scratch, float* running,
                Number* y, cudaStream_t);
template <class Number>
void batch_norm_input_gradient(const Number* x, const float* scale, const Number* dy, RowSizes, void* scratch,
                               Number* dx, cudaStream_t);
template <class Number>
void batch_norm_weight_gradient(const Number* x, const Number* dy, RowSizes, void* scratch, float* dscale,
                                float* dshift, cudaStream_t);

template <class Number>
void layer_norm(const Number* x, const float* scale, const float* shift, RowSizes, Number* y, cudaStream_t);
template <class Number>
void layer_norm_input_gradient(const Number* x, const float* scale, const Number* dy, RowSizes, Number* dx,
                               cudaStream_t);
std::int64_t layer_norm_weight_scratch(RowSizes);
template <class Number>
void layer_norm_weight_gradient(const Number* x, const Number* dy, RowSizes, void* scratch, float* dscale,
                                float* dshift, cudaStream_t);

template <class Number>
void root_norm(const Number* x, const float* scale, RowSizes, Number* y, cudaStream_t);
template <class Number>
void root_norm_input_gradient(const Number* x, const float* scale, const Number* dy, RowSizes, Number* dx,
                              cudaStream_t);
std::int64_t root_norm_weight_scratch(RowSizes);
template <class Number>
void root_norm_weight_gradient(const Number* x, const Number* dy, RowSizes, void* scratch, float* dscale, cudaStream_t);

template <class From, class To>
void softmax(const From* x, RowSizes, To* y, cudaStream_t);
template <class From, class To>
void softmax_gradient(const From* y, const From* dy, RowSizes, To* dx, cudaStream_t);

// --- mixture.cu: chances and their gradients are fp32
void choose(const float* chances, const ExpertSizes&, const ExpertChoice&, cudaStream_t);
template <class Number>
void send_to_experts(const ExpertSizes&, const ExpertChoice&, const Number* x, Number* rows, cudaStream_t);
template <class Number>
void bring_from_experts(const ExpertSizes&, const ExpertChoice&, const Number* drows, Number* dx, cudaStream_t);
template <class Number>
void mix_experts(const ExpertSizes&, const ExpertChoice&, const Number* rows, const float* chances, Number* y,
                 cudaStream_t);
template <class Number>
void mix_experts_gradient(const ExpertSizes&, const ExpertChoice&, const Number* dy, const Number* rows,
                          const float* chances, Number* drows, float* dchances, cudaStream_t);

// --- layers.cu
void max_pool(const Bf16* x, const PoolSizes&, Bf16* y, cudaStream_t);
template <class Number>
void max_pool_gradient(const Number* x, const Number* dy, const PoolSizes&, Number* dx, cudaStream_t);
template <class Number>
void average_pool(const Number* x, std::int64_t batch, std::int64_t pixels, std::int64_t channels, Number* y,
                  cudaStream_t);
template <class Number>
void average_pool_gradient(const Number* dy, std::int64_t batch, std::int64_t pixels, std::int64_t channels, Number* dx,
                           cudaStream_t);
template <class Number>
void embedding(const std::int32_t* token, const float* table, const float* positions, const plain::EmbeddingSizes&,
               Number* y, cudaStream_t);
std::int64_t embedding_gradient_scratch(const plain::EmbeddingSizes&);
template <class Number>
void embedding_weight_gradient(const std::int32_t* token, const Number* dy, const plain::EmbeddingSizes&, void* scratch,
                               float* dtable, float* dpositions, cudaStream_t);
template <class Number>
void cross_entropy_gradient(const float* probabilities, std::int64_t rows, std::int64_t classes, Number* dlogits,
                            cudaStream_t);
/// Of rows with these labels, times `share`: of a mean over more rows than these.
void share_of_loss_gradient(const float* probabilities, const std::int32_t* labels, std::int64_t rows,
                            std::int64_t classes, float share, float* dlogits, cudaStream_t);
template <class Number>
void lstm_cell(const Number* gates, const Number* state, std::int64_t batch, std::int64_t width, Number* next,
               cudaStream_t);
template <class Number>
void lstm_cell_gradient(const Number* dnext, const Number* gates, const Number* state, std::int64_t batch,
                        std::int64_t width, Number* dgates, cudaStream_t);
template <class Number>
void lstm_cell_half(const Number* dnext, const Number* gates, const Number* state, std::int64_t batch,
                    std::int64_t width, Number* dstate, cudaStream_t);
template <class Number>
void rotate(const Number* x, const RotationSizes&, bool back, Number* y, cudaStream_t);
template <class Number>
void gated_silu(const Number* gate, const Number* up, Number* y, std::int64_t n, cudaStream_t);
template <class Number>
void gated_silu_gradient(const Number* gate, const Number* up, const Number* dy, Number* dgate, Number* dup,
                         std::int64_t n, cudaStream_t);

// --- attention_tiles.cu
void fused_attention(const FusedSizes&, const float* q, const float* kv, float* mixed, float* sums, cudaStream_t);
void fused_attention_backward(const FusedSizes&, const FusedSaved&, float* dq, float* dkv, cudaStream_t);

// --- compression.cu
void block_means(const float* x, const BlockSizes&, float* means, cudaStream_t);
void expand_blocks(const float* means, const BlockSizes&, float* x, cudaStream_t);
void quantize(const float* x, const QuantizeSizes&, Rounding, std::uint64_t seed, float* scales, std::uint8_t* packed,
              cudaStream_t);
void dequantize(const std::uint8_t* packed, const float* scales, const QuantizeSizes&, float* x, cudaStream_t);

}  // namespace plimsoll::launch
