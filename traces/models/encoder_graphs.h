#pragma once
// Encoders as people train them, BERT on words and ViT on patches of images; OPT and Phi, which have their blocks; and
// models of an encoder and a decoder that attends to it, Whisper and T5.

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
  /// DistilBERT has no segments and drops no result of attention; RoBERTa has one segment, makes positions from words,
  /// and leaves the first two rows of theirs.
  static constexpr std::array<std::string_view, 3> variants{"bert", "roberta", "distilbert"};
  std::uint32_t variant = 0;  ///< which of `variants`
  std::uint32_t head = 0;     ///< which of `heads_of_model`: a distribution a token (BertForMaskedLM), or one a sample
  std::uint32_t dtype = 1;    ///< which of EagerModules::precisions
  std::uint32_t logits = 0;   ///< which of EagerModules::logits_kept
  std::uint32_t attention = 0, dropout = 0;  ///< which of EagerModules::attentions, of no_or_yes
  std::uint32_t loss = 1;                    ///< which of EagerModules::no_or_yes: else the caller has it
  std::uint32_t lora = 0;                    ///< rank of adapters, which alone are trained; 0: all is
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
  std::uint32_t lora = 0;   ///< as that of BertGraph
  FlopsPerSecond rate{100e12};
};

/// Likewise of ViTForImageClassification: a convolution for patches, a class token, norms before the blocks.
/// Throws where heads do not divide the width, or patches the image.
Graph vit_graph(const VitGraph&);

/// Sizes; those of OPT 1.3B unless told. `inner` is four times the width where it is 0.
struct OptGraph {
  std::uint32_t layers = 24, width = 2048, heads = 32, inner = 0, sequence = 2048, batch = 1, vocabulary = 50272,
                positions = 2048;
  std::uint32_t dtype = 1;                                       ///< which of EagerModules::precisions
  std::uint32_t logits = 0;                                      ///< which of EagerModules::logits_kept
  std::uint32_t attention = 0, dropout = 0, loss = 1, lora = 0;  ///< as those of BertGraph
  FlopsPerSecond rate{100e12};
};

/// Likewise of OPTForCausalLM of transformers 4, which bounds masked scores: norms before the blocks, ReLU, a head tied
/// to the table of tokens, positions from the third row of theirs on.
Graph opt_graph(const OptGraph&);

/// Sizes; those of Phi-1.5 unless told. `inner` is four times the width where it is 0.
struct PhiGraph {
  std::uint32_t layers = 24, width = 2048, heads = 32, inner = 0, sequence = 2048, batch = 1, vocabulary = 51200;
  std::uint32_t rotary = 0;   ///< numbers of a head that positions turn; 0: half of them
  std::uint32_t dtype = 1;    ///< which of EagerModules::precisions
  std::uint32_t logits = 0;   ///< which of EagerModules::logits_kept
  std::uint32_t dropout = 0;  ///< of results of blocks: which of EagerModules::no_or_yes
  std::uint32_t lora = 0;     ///< as that of BertGraph
  FlopsPerSecond rate{100e12};
};

/// Likewise of PhiForCausalLM: attention and MLP read one norm, and both are added to its input; a head of its own,
/// with a bias. Stages are the embedding, a layer, the head, the loss. Throws where heads do not divide the width, or
/// positions turn more numbers than a head has.
Graph phi_graph(const PhiGraph&);

/// Sizes; those of Whisper small unless told. `layers` are the encoder's; `source` its positions, which are half of the
/// sound's; `sequence` tokens. `inner` is four times the width where it is 0.
struct WhisperGraph {
  std::uint32_t layers = 12, decoder = 12, width = 768, heads = 12, inner = 0, source = 1500, sequence = 448, batch = 1,
                vocabulary = 51865, positions = 448, mels = 80;
  std::uint32_t dtype = 1;   ///< which of EagerModules::precisions
  std::uint32_t logits = 0;  ///< which of EagerModules::logits_kept
  std::uint32_t lora = 0;    ///< as that of BertGraph
  FlopsPerSecond rate{100e12};
};

/// Ops as eager PyTorch launches them in Hugging Face's WhisperForConditionalGeneration: two convolutions of the sound,
/// norms before the blocks, keys without biases, copies of queries, keys and values by head. The encoder's positions
/// are not trained. Stages are the sound, an attention and an MLP a layer, the encoder's last norm, the target's
/// embedding, two attentions and an MLP a layer of the decoder, the head, the loss. Throws as bert_graph.
Graph whisper_graph(const WhisperGraph&);

/// Sizes; those of T5 small unless told, as those of WhisperGraph.
struct T5Graph {
  std::uint32_t layers = 6, decoder = 6, width = 512, heads = 8, head_size = 64, inner = 2048, source = 512,
                sequence = 512, batch = 1, vocabulary = 32128;
  static constexpr std::array<std::string_view, 2> acts{"relu", "gated_gelu"};
  std::uint32_t act = 0;  ///< which of `acts`: that of T5, or of its version 1.1 and of Flan-T5
  static constexpr std::array<std::string_view, 4> dtypes{"bf16", "fp16", "fp32", "amp"};
  std::uint32_t dtype = 0;              ///< of activations and parameters: which of `dtypes`; amp: torch.autocast
  std::uint32_t dropout = 0, tied = 1;  ///< which of EagerModules::no_or_yes
  std::uint32_t logits = 0;             ///< which of EagerModules::logits_kept
  std::uint32_t lora = 0;               ///< as that of BertGraph
  FlopsPerSecond rate{100e12};
};

/// Likewise of T5ForConditionalGeneration, whose words are masked by numbers that are added to scores, as those that
/// tokenizers pad are: attention from kernels, whose shares are made in fp32, and biases of relative positions, which
/// the first layer of a stack makes for all of it.
Graph t5_graph(const T5Graph&);

}  // namespace plimsoll
