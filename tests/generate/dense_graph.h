#pragma once
// A training graph in the manner of DenseNet: every layer reads what all layers before it in its block made.

#include <array>
#include <cstddef>

#include "sim/core/graph.h"

namespace plimsoll {

/// Layers of the four blocks. A layer is concatenation, normalisation, ReLU, 1x1 convolution, normalisation, ReLU, 3x3
/// convolution; the backward adds up the gradients that reach a value one by one. Times: convolutions by 15 TFLOP/s,
/// the rest by 1.5 TB/s; sizes: fp32, growth 48, batch 32, images of 224 x 224.
Graph dense_graph(const std::array<std::size_t, 4>& layers);

/// About 3,000 ops.
inline constexpr std::array<std::size_t, 4> dense_layers{6, 12, 48, 32};

}  // namespace plimsoll
