#pragma once
// The synthetic transformer operator by operator, each with its loop, so that it can be cut among devices.

#include "sim/core/graph.h"
#include "traces/models/synthetic.h"

namespace plimsoll {

/// A pre-norm decoder: an embedding, `layers` times attention and MLP, a final norm and vocabulary head, a loss; one
/// forward, and backward ops for the gradient of the input and of the parameters. What is kept for the backward is that
/// of Korthikanti et al. 2022, section 4.1: with dropout 34sbh + 5as^2b bytes a layer of two-byte numbers. Stages are
/// those of the chain. With `decoder` layers these follow an encoder of `layers`: behind its last norm and an embedding
/// of their own each is an attention, an attention to what the encoder made, and an MLP. Work is that of matrix
/// products, as in the chain; times are work / `rate`. Throws where the heads do not divide the width.
Graph transformer_graph(const TransformerChain&);

}  // namespace plimsoll
