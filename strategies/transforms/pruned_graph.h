#pragma once
// Graphs of convolutional networks with fewer channels.

#include <cstdint>
#include <string>
#include <variant>

#include "sim/core/graph.h"

namespace plimsoll {

/// By its shape.
std::int64_t numbers_of(const Tensor&);

/// Of a convolution.
struct ChannelCounts {
  std::int64_t inputs, outputs;
};

/// What share of its time and operations a convolution takes.
using ConvolutionShare = double (*)(ChannelCounts before, ChannelCounts after);

/// Every convolution keeps max(1, round((1 - ratio) c)) of its c output channels, and so does what follows until a
/// linear layer, whose outputs stay. Shapes and bytes of all tensors, bytes moved and times of ops follow; workspaces
/// stay. In one sentence, where an op is not known to pass channels on, or what would change has no shape.
std::variant<Graph, std::string> pruned_graph(Graph, double ratio, ConvolutionShare);

}  // namespace plimsoll
