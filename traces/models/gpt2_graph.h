#pragma once
// GPT-2 as people train it: learned positions, layer norms, biases, GELU by tanh, fused causal attention, a head tied
// to the table of tokens.

#include <cstdint>

#include "sim/core/graph.h"

namespace plimsoll {

/// Sizes; those of GPT-2 small unless told.
struct Gpt2Graph {
  std::uint32_t layers = 12, width = 768, heads = 12, sequence = 1024, batch = 1, vocabulary = 50257, positions = 1024;
  std::uint32_t dtype = 1;                   ///< which of EagerModules::precisions
  std::uint32_t logits = 0;                  ///< which of EagerModules::logits_kept
  std::uint32_t attention = 0, dropout = 0;  ///< which of EagerModules::attentions, of no_or_yes
  std::uint32_t loss = 1;                    ///< which of EagerModules::no_or_yes: else the caller has it
  std::uint32_t lora = 0;                    ///< rank of adapters, which alone are trained; 0: all is
  FlopsPerSecond rate{100e12};
};

/// Ops as eager PyTorch launches them in Hugging Face's GPT2LMHeadModel, one op a kernel but for norms' backwards,
/// fused attention and the loss. Stages are an embedding, an attention and an MLP a layer, the head, the loss.
/// Throws where heads do not divide the width, the sequence has more tokens than positions, or eager attention is under
/// autocast.
Graph gpt2_graph(const Gpt2Graph&);

}  // namespace plimsoll
