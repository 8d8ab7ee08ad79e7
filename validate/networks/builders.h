#pragma once
// The networks there are: sizes by options, layers in stages.

#include <cstdint>
#include <string>
#include <vector>

#include "sim/core/schedule.h"
#include "validate/networks/graph_writing.h"
#include "validate/networks/network.h"

namespace plimsoll {

// Writes a network down layer by layer; `finish` adds the backward in reverse, split into input and weight gradients
// where a layer has both, and the updates.

/// What the device is taken to do before anything has been measured.
struct StatedRates {
  FlopsPerSecond flops{50e9};
  BytesPerSecond bytes{5e9};
};

/// What every network takes beside its sizes.
struct TrainingOptions {
  Optimizer updates = Optimizer::none;
  std::vector<ParameterGroup> groups = {};  ///< of parameters that other optimizers update
  StatedRates rates;
};

/// One of the equal slices that a sequence is cut into.
struct SequenceSlice {
  std::uint32_t index = 0, count = 1;
};

/// Time: the slower of work and traffic at the stated rates.
void state_costs(Graph&, const StatedRates&);

/// Of attention: heads of queries, heads of keys and values, numbers of each, and the base of the positions' angles.
struct GroupedHeads {
  std::int64_t queries, keys, size, base;
};

/// How many, how many a token goes to, how many rows each has room for, and the coefficient of a loss that balances
/// them.
struct Experts {
  std::int64_t count, top, room;
  double balance = 0;
};

class NetworkBuilder {
 public:
  NetworkBuilder(std::string name, StatedRates rates, SequenceSlice = {});

  /// The network's input, which begins the first stage.
  TensorId input(Shape shape, std::string dtype);
  /// What follows belongs to a new stage, which reads nothing of the stages before but `boundary`.
  void begin_stage(std::string name, TensorId boundary);
  TensorId parameter(const std::string& name, Shape shape);

  /// x is (..., k), weight (k, n), bias (n): (..., n). `features` names k and n, for those who share them out among
  /// devices (sim/ops/split_rules.h): `w` what lies between blocks, `f` and `a` what lies within an MLP or its heads
  /// within an attention, `v` classes or words.
  TensorId linear(const std::string& name, TensorId x, std::int64_t outputs, const std::string& features = "w n");
  /// x is (batch, height, width, channels); kernels are odd squares, padded so that stride 1 keeps the size.
  TensorId convolution(const std::string& name, TensorId x, std::int64_t channels, std::int64_t kernel,
                       std::int64_t stride);
  TensorId batch_norm(const std::string& name, TensorId x);
  TensorId layer_norm(const std::string& name, TensorId x);
  TensorId relu(const std::string& name, TensorId x, const std::string& features = "w");
  TensorId gelu(const std::string& name, TensorId x, const std::string& features = "w");
  TensorId max_pool(const std::string& name, TensorId x);      ///< windows of 3 x 3, stride 2
  TensorId average_pool(const std::string& name, TensorId x);  ///< of each channel's whole picture: (batch, channels)
  TensorId add(const std::string& name, TensorId a, TensorId b);
  /// tokens are (batch, sequence) whole numbers: (batch, sequence, width). A slice has the positions of its place.
  TensorId embedding(const std::string& name, TensorId tokens, std::int64_t vocabulary, std::int64_t width);
  /// Causal self-attention of `heads` heads: x is (batch, sequence, width), projected to query, key and value and back.
  /// A slice attends to those before it and to itself.
  TensorId attention(const std::string& name, TensorId x, std::int64_t heads);
  /// The same without whole weights, on a whole sequence: queries are one product, keys and values another.
  TensorId fused_attention(const std::string& name, TensorId x, std::int64_t heads);
  /// The same by the table alone: positions come in later, as a rotation.
  TensorId word_embedding(const std::string& name, TensorId tokens, TensorId table);
  TensorId product(const std::string& name, TensorId x, std::int64_t outputs,
                   const std::string& features);                               ///< no bias
  TensorId tied_product(const std::string& name, TensorId x, TensorId table);  ///< with each row of the table: a word's
  TensorId root_norm(const std::string& name, TensorId x);
  TensorId gated_silu(const std::string& name, TensorId gate, TensorId up);
  /// Causal self-attention of a whole sequence, without whole weights, whose queries and keys are turned by their
  /// positions; heads of queries share heads of keys and values in equal groups.
  TensorId grouped_attention(const std::string& name, TensorId x, const GroupedHeads&);
  /// A gated MLP of each expert, of which every token goes to a few: a router's products and softmax say to which.
  TensorId experts(const std::string& name, TensorId x, std::int64_t inner, const Experts&);
  /// state is (batch, 2 width): hidden, then cell. weight is (width, 4 width), bias (4 width).
  TensorId lstm_cell(const std::string& name, TensorId state, TensorId weight, TensorId bias);
  /// The loss stage: mean cross-entropy of softmax; row r of a micro-batch has the label r modulo the classes.
  void cross_entropy(TensorId logits);

  Network finish(const TrainingOptions&) &&;

 private:
  const Shape& shape(TensorId t) const { return network_.graph[t].shape; }
  TensorId forward(OpKind, const std::string& name, std::vector<TensorId> inputs, Attributes = {});
  void add_update(TensorId parameter, TensorId gradient, Optimizer);
  /// Of what a slice reads of one `before` slices before it, and the room for its gradients.
  Attended attended_slice(const std::string& name, TensorId own, std::uint32_t before);
  Attributes place_in_sequence(std::int64_t positions) const;

  Network network_;
  StatedRates rates_;
  SequenceSlice slice_;
  std::uint32_t stage_ = 0;
};

/// Linear layers with ReLU between them; the last makes `classes` logits.
struct MlpSizes {
  std::uint32_t layers = 8, width = 512, batch = 64, classes = 16;
};
Network mlp(const MlpSizes&, const TrainingOptions&);

/// What a residual block is made of: two convolutions of 3 x 3; or one between two of single pixels, the last of which
/// makes four times as many channels.
enum class ResidualBlock : std::uint8_t { basic, bottleneck };

/// Convolution, batch norm, ReLU and max pooling as stem, then residual blocks whose channels double where the picture
/// shrinks, then global average pooling and a linear head. Pictures are square, with `colors` channels.
struct ResnetSizes {
  std::uint32_t blocks = 4, channels = 16, picture = 32, batch = 8, classes = 10, colors = 3;
  std::uint32_t block = static_cast<std::uint32_t>(ResidualBlock::basic);
};
Network resnet(const ResnetSizes&, const TrainingOptions&);

/// Eager: scores, their softmax and what it mixes are values; fused: none of them is.
enum class GptAttention : std::uint8_t { eager, fused };

/// A decoder: embedding, then pre-norm layers of causal attention and MLP with GELU, one stage each, then norm and
/// head.
struct GptSizes {
  std::uint32_t layers = 4, width = 128, heads = 4, sequence = 64, batch = 4, vocabulary = 256;
  std::uint32_t attention = static_cast<std::uint32_t>(GptAttention::eager);
};
/// Of a slice, whose count divides the sequence: what it runs on that slice.
Network gpt(const GptSizes&, const TrainingOptions&, SequenceSlice = {});

/// A decoder as Llama's: embedding, then layers of RMS norm and grouped attention, and of RMS norm and gated MLP, one
/// stage each, then norm and head; no biases.
struct DecoderSizes {
  std::uint32_t layers = 4, width = 128, heads = 4, kv_heads = 2;
  std::uint32_t inner = 0;  ///< of the MLP; 0: 8/3 of the width, rounded up to a multiple of 32
  std::uint32_t sequence = 64, batch = 4, vocabulary = 256, base = 10'000;
  std::uint32_t tied = 0;                ///< 1: the head's weight is the embedding's table
  std::uint32_t experts = 0, top_k = 2;  ///< in place of an MLP; 0: none
  double capacity = 1.25;                ///< rows for which an expert has room, in what it gets where all get as many
  double balance = 0;                    ///< of a loss for unequal numbers of tokens at experts
};
Network decoder(const DecoderSizes&, const TrainingOptions&);

/// One LSTM cell run for many steps with the same parameters, from a state that is the input, and a linear head.
struct LstmSizes {
  std::uint32_t steps = 16, width = 128, batch = 32, classes = 16;
};
Network lstm(const LstmSizes&, const TrainingOptions&);

}  // namespace plimsoll
