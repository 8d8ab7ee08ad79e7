#pragma once
// Ops of a training iteration that one node of an ONNX model becomes: its forward, and its backward, which reads what
// PyTorch's derivatives.yaml says.

#include <vector>

#include "traces/imports/onnx/onnx_tape.h"

namespace plimsoll {

/// `results` as onnx_results() gives them; throws InputError.
void lower_onnx_node(OnnxTape&, const OnnxNode&, const OnnxKind&, const std::vector<OnnxValue>& results);

/// Nodes that show the numbers of their first input in another shape, with a copy where PyTorch needs one.
void lower_onnx_view(OnnxTape&, const OnnxNode&, const OnnxKind&, const std::vector<OnnxValue>& results);

/// Whether a value can be shown in another shape without a copy.
bool shows_shape(const TapeValue&, const AtenShape&);

}  // namespace plimsoll
