#pragma once
// A decoder as Llama, Mistral and others have it: queries that share keys and values, rotary positions, RMS norms,
// gated MLPs, no biases, fused causal attention.

#include <array>
#include <cstdint>
#include <string_view>

#include "sim/core/graph.h"

namespace plimsoll {

/// Sizes; those of Llama-3 8B with 4,096 tokens unless told.
struct LlamaGraph {
  std::uint32_t layers = 32, width = 4096, heads = 32, kv_heads = 8, inner = 14336, sequence = 4096, batch = 1,
                vocabulary = 128256;
  std::uint32_t lora = 0;  ///< rank of fp32 adapters of attention's projections, which alone are trained; 0: all is
  static constexpr std::array<std::string_view, 2> bases{"dtype", "nf4"};
  std::uint32_t base = 0;  ///< what frozen weights of products in layers are, beside adapters: which of `bases`
  static constexpr std::array<std::string_view, 2> product_types{"dtype", "fp8"};
  std::uint32_t products = 0;  ///< of layers: what they compute in, which of `product_types`
  static constexpr std::array<std::string_view, 2> views{"graph", "chain"};
  std::uint32_t view = 0;        ///< which of `views`: operators, or their stages
  std::uint32_t window = 0;      ///< keys that a query sees, its own among them; 0: all before it
  std::uint32_t full_every = 0;  ///< the last of each so many layers has no window; 0: no layer
  // What Gemma does otherwise: norms in fp32 to the end, whose scale is counted from one, and a scaled embedding; GELU
  // by tanh; norms behind blocks, too.
  static constexpr std::array<std::string_view, 2> norms{"llama", "gemma"}, acts{"silu", "gelu"};
  std::uint32_t norm = 0, act = 0;  ///< which of `norms`, of `acts`
  std::uint32_t post_norms = 0;     ///< which of EagerModules::no_or_yes
  std::uint32_t logit_cap = 0;      ///< logits are bounded by a tanh: which of EagerModules::no_or_yes
  /// Queries, keys and values are views of one product, gate and up of another: which of EagerModules::no_or_yes.
  std::uint32_t joined = 0;
  // Mixture of experts behind `dense_layers` layers with an MLP: none without experts.
  std::uint32_t experts = 0, top_k = 2, expert_inner = 0, shared = 0, dense_layers = 0;
  static constexpr double most_skew = 10;
  double skew = 0;         ///< rows of the i-th busiest expert fall as i^-skew (expert_rows.h); 0: equal
  std::uint32_t seed = 1;  ///< which experts are busy, layer by layer
  static constexpr double most_capacity = 1000;
  double capacity = 0;       ///< rows of an expert are at most so many times the mean; 0: no token is dropped
  std::uint32_t padded = 0;  ///< all experts have as many: which of EagerModules::no_or_yes
  /// By a softmax whose best shares are made to sum up to 1, by scores of their own, or as Qwen 2 by a softmax alone.
  static constexpr std::array<std::string_view, 3> routers{"softmax", "sigmoid", "plain_softmax"};
  std::uint32_t router = 0;       ///< how experts are chosen: which of `routers`
  std::uint32_t shared_gate = 0;  ///< what all tokens pass is scaled by a gate: which of EagerModules::no_or_yes
  /// Numbers of a head's queries, keys and values; 0: the width over the heads. Of latent attention those of queries
  /// and keys that positions do not turn; 0: 128.
  std::uint32_t head_size = 0;
  std::uint32_t bias = 0;     ///< of queries', keys' and values' products: which of EagerModules::no_or_yes
  std::uint32_t qk_norm = 0;  ///< queries and keys have a norm a head: which of EagerModules::no_or_yes
  std::uint32_t tied = 0;     ///< the head's weight is the table of tokens: which of EagerModules::no_or_yes
  // Latent attention: none without kv_rank. Queries are projected at once without q_rank. Of a head: numbers of queries
  // and keys that positions turn, and numbers of values.
  std::uint32_t kv_rank = 0, q_rank = 0, rope_size = 64, value_size = 128;
  static constexpr std::array<std::string_view, 4> dtypes{"bf16", "fp16", "fp32", "amp"};
  std::uint32_t dtype = 0;      ///< of activations and parameters: which of `dtypes`; amp: torch.autocast in bf16
  std::uint32_t logits = 0;     ///< which of EagerModules::logits_kept
  FlopsPerSecond rate{100e12};  ///< how fast the device is taken to compute
};

/// Ops as eager PyTorch launches them in Hugging Face's LlamaForCausalLM, those of one norm, of one rotation and of the
/// loss as one op each, whose `bytes_moved` are those of all its kernels. A norm keeps its input in fp32, a root a
/// token and what it scales, an attention its inputs, its result and a number a query in fp32; the loss is computed on
/// an fp32 copy of the logits. Stages are an embedding, an attention and an MLP a layer, and the head with the loss.
/// With base nf4 weights of products in layers take 4.127 bits a number and are unpacked for each product, as
/// bitsandbytes does. With products fp8 both operands of a product in a layer are copied to 8 bits for it alone, as
/// torchao does. Throws where heads do not divide the width and their size is not given, keys' heads do not divide
/// the heads, a token has more experts than there are, or options do not go together.
Graph llama_graph(const LlamaGraph&);

}  // namespace plimsoll
