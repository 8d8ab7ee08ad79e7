#pragma once
// The networks of ParDNN's experiments as graphs of made-up ops: what depends on what is theirs, times and bytes are
// typical proportions. Two sizes each; traces/synthetic.md says what they are.

#include "traces/models/training_graph.h"

namespace plimsoll {

/// A word-level recurrent network: a grid of LSTM cells, unrolled over the steps.
ProportionedGraph rnn_graph(std::uint32_t layers, std::uint32_t steps, std::uint64_t seed);

/// A character-level convolutional and recurrent network: independent branches for each place of each word.
ProportionedGraph crn_graph(std::uint32_t filters, std::uint32_t words, std::uint64_t seed);

/// A wide residual network: a chain of units, the normalization of each in slices of its channels.
ProportionedGraph wrn_graph(std::uint32_t units, std::uint32_t slices, std::uint64_t seed);

/// A transformer's decoder with two attentions a layer, head by head.
ProportionedGraph trn_graph(std::uint32_t layers, std::uint32_t heads, std::uint64_t seed);

/// An eidetic 3D LSTM: cells of sixteen patches, and a memory that winds through all layers of all steps.
ProportionedGraph e3d_graph(std::uint32_t steps, std::uint32_t layers, std::uint64_t seed);

}  // namespace plimsoll
