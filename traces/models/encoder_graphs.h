#pragma once
// Encoders as people train them, BERT on words and ViT on patches of images; and OPT, which has their blocks.

#include <array>
#include <cstdint>
#include <string_view>

#include "sim/core/graph.h"

namespace plimsoll {

/// Sizes; those of BERT base unless told.
struct BertGraph {
  std::uint32_t layers = 12, width = 768, heads = 12, inner = 0, sequence = 512, batch = 1, vocabulary = 30522,
                positions = 512, classes = 2;
  static constexpr std::array<std::string_view, 2> heads_of_model{"words", "classes"};
  std::uint32_t head = 0;    ///< which of `heads_of_model`: a distribution a token (BertForMaskedLM), or one a sample
  std::uint32_t dtype = 1;   ///< which of EagerModules::precisions
  std::uint32_t logits = 0;  ///< which of EagerModules::logits_kept
  std::uint32_t attention = 0, dropout = 0;  ///< which of EagerModules::attentions, of no_or_yes
  std::uint32_t loss = 1;                    ///< which of EagerModules::no_or_yes: else the caller has it
  FlopsPerSecond rate{100e12};
};

/// Ops as eager PyTorch launches them in Hugging Face's BertForMaskedLM or BertForSequenceClassification where no word
/// is masked out, one op a kernel but for norms' backwards, fused attention and the loss. `inner` is four times
/// the width where it is 0. Stages are the embedding, an attention and an MLP a layer, the head, the loss. Throws where
/// heads do not divide the width, the sequence has more tokens than positions, or eager attention is under autocast.
Graph bert_graph(const BertGraph&);

/// Sizes; those of ViT base with patches of 16 unless told.
struct VitGraph {
  std::uint32_t layers = 12, width = 768, heads = 12, inner = 0, size = 224, patch = 16, channels = 3, batch = 1,
                classes = 1000;
  std::uint32_t dtype = 1;  ///< which of EagerModules::precisions
  FlopsPerSecond rate{100e12};
};

/// Likewise of ViTForImageClassification: a convolution for patches, a class token, norms before the blocks.
/// Throws where heads do not divide the width, or patches the image.
Graph vit_graph(const VitGraph&);

/// Sizes; those of OPT 1.3B unless told. `inner` is four times the width where it is 0.
struct OptGraph {
  std::uint32_t layers = 24, width = 2048, heads = 32, inner = 0, sequence = 2048, batch = 1, vocabulary = 50272,
                positions = 2048;
  std::uint32_t dtype = 1;                             ///< which of EagerModules::precisions
  std::uint32_t logits = 0;                            ///< which of EagerModules::logits_kept
  std::uint32_t attention = 0, dropout = 0, loss = 1;  ///< as those of BertGraph
  FlopsPerSecond rate{100e12};
};

/// Likewise of OPTForCausalLM of transformers 4, which bounds masked scores: norms before the blocks, ReLU, a head tied
/// to the table of tokens, positions from the third row of theirs on.
Graph opt_graph(const OptGraph&);

}  // namespace plimsoll
