#pragma once
// Shapes of what ONNX's operators make, and the integers that shapes are computed from.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "traces/imports/onnx/onnx_model.h"
#include "traces/imports/pytorch/aten_work.h"

namespace plimsoll {

struct OnnxValue {
  AtenShape shape;
  int dtype = 1;
  std::optional<std::vector<std::int64_t>> numbers = {};  ///< known ones, of a shape or an index
  std::optional<float> scalar = {};                       ///< a known one
};

/// What a node does with its first input, as far as work and backward ask.
enum class OnnxRule : std::uint8_t {
  view,     ///< the same numbers in another shape, or some of them
  unary,    ///< number by number
  binary,   ///< of two values that are broadcast
  product,  ///< MatMul, Gemm
  convolution,
  transposed_convolution,
  batch_norm,
  instance_norm,
  layer_norm,
  softmax,
  max_pool,
  mean,       ///< pools and reductions
  extreme,    ///< reductions to one of the numbers
  lookup,     ///< rows of a table
  picked,     ///< numbers at places that another input gives
  scattered,  ///< numbers put at places that another input gives
  moved,      ///< the same numbers in other places, or often: the backward reads nothing
  attention,  ///< scaled_dot_product_attention, joined of its parts
  concatenation,
  dropout,
  conversion,
  made_of_nothing
};

struct OnnxKind {
  std::string_view op, kind;  ///< ONNX's word and that of PyTorch's dispatcher
  OnnxRule rule;
};

/// The first input that is not trained whatever it is: running statistics, a ratio, limits, sizes.
std::size_t onnx_settings_from(std::string_view op);

/// Unset where the operator is not known.
const OnnxKind* onnx_kind(std::string_view op);

/// The results of a node of a known operator; throws InputError.
std::vector<OnnxValue> onnx_results(const OnnxNode&, const std::vector<const OnnxValue*>& inputs,
                                    const std::string& file);

/// `net.onnx: Reshape '/Reshape': what`
[[noreturn]] void refuse_onnx_node(const std::string& file, const OnnxNode&, const std::string& what);

std::optional<std::string_view> onnx_dtype(int dtype);  ///< `float32`

}  // namespace plimsoll
