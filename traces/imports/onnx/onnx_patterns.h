#pragma once
// Nodes that PyTorch's exporter writes for one op of its own, joined to that again.

#include "traces/imports/onnx/onnx_model.h"

namespace plimsoll {

/// GELU, SiLU, reciprocal square roots, layers with a bias and scaled_dot_product_attention as single nodes. A model
/// that was exported layer by layer (eager attention) stays as it is.
void join_onnx_patterns(OnnxModel&);

}  // namespace plimsoll
