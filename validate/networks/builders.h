#pragma once
// The networks there are: sizes by options, layers in stages.

#include <cstdint>

#include "validate/networks/network_builder.h"

namespace plimsoll {

/// What every network takes beside its sizes.
struct TrainingOptions {
  Optimizer updates = Optimizer::none;
  StatedRates rates;
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

/// A decoder: embedding, then pre-norm layers of causal attention and MLP with GELU, one stage each, then norm and
/// head.
struct GptSizes {
  std::uint32_t layers = 4, width = 128, heads = 4, sequence = 64, batch = 4, vocabulary = 256;
};
/// Of a slice, whose count divides the sequence: what it runs on that slice.
Network gpt(const GptSizes&, const TrainingOptions&, SequenceSlice = {});

/// One LSTM cell run for many steps with the same parameters, from a state that is the input, and a linear head.
struct LstmSizes {
  std::uint32_t steps = 16, width = 128, batch = 32, classes = 16;
};
Network lstm(const LstmSizes&, const TrainingOptions&);

}  // namespace plimsoll
