// Views of an ONNX model: shapes, axes in another order, parts.

#include <algorithm>

#include "traces/imports/onnx/onnx_layers.h"

namespace plimsoll {
namespace {

bool is_whole_view(std::string_view op) {
  return op != "Slice" && op != "Split" && op != "Expand";
}

/// 0 along what is repeated.
AtenShape expanded(const TapeValue& x, const AtenShape& shape) {
  AtenShape strides(shape.size(), 0);
  for (std::size_t k = 0; k < std::min(shape.size(), x.shape.size()); ++k) {
    const std::size_t from = x.shape.size() - 1 - k, to = shape.size() - 1 - k;
    if (x.shape[from] == shape[to]) strides[to] = x.strides[from];
  }
  return strides;
}

/// Strides that show a value in another shape without a copy; unset where there are none.
std::optional<AtenShape> regrouped(const TapeValue& x, const AtenShape& shape) {
  AtenShape strides(shape.size(), 1);
  std::size_t to = shape.size(), from = x.shape.size();
  while (from > 0) {
    std::int64_t block = x.shape[from - 1];
    const std::int64_t step = x.strides[from - 1];
    while (from > 1 && (x.shape[from - 2] == 1 || x.strides[from - 2] == x.shape[from - 1] * x.strides[from - 1])) {
      --from;
      block *= x.shape[from - 1];
    }
    --from;
    std::int64_t covered = 1;
    while (to > 0 && covered * shape[to - 1] <= block && shape[to - 1] > 0) {
      strides[to - 1] = covered * step;
      covered *= shape[to - 1];
      --to;
    }
    if (covered != block) return std::nullopt;
  }
  return to == 0 ? std::optional(strides) : std::nullopt;
}

AtenShape strides_of(const OnnxNode& node, const TapeValue& x, const AtenShape& shape) {
  if (node.op == "Transpose") {
    const auto perm = node.attributes.find("perm");
    AtenShape strides;
    for (std::size_t k = 0; k < shape.size(); ++k) {
      const std::int64_t axis =
          perm == node.attributes.end() ? static_cast<std::int64_t>(shape.size() - 1 - k) : perm->second.ints[k];
      strides.push_back(
          x.strides[static_cast<std::size_t>(axis < 0 ? axis + static_cast<std::int64_t>(shape.size()) : axis)]);
    }
    return strides;
  }
  if (node.op == "Expand") return expanded(x, shape);
  if (node.op == "Slice" || node.op == "Split" || node.op == "Identity") return x.strides;
  return x.strides == dense_strides(x.shape) ? dense_strides(shape)
                                             : regrouped(x, shape).value_or(dense_strides(shape));
}

void copied(OnnxTape& tape, const OnnxNode& node, const TapeValue& x, const OnnxValue& result) {
  TapeValue& y = tape.fresh(node, result, x.needs_gradient);
  y.gradient = x.gradient;
  tape.op({.kind = "clone", .inputs = {*x.tensor}, .outputs = {*y.tensor}}, label_of(node));
}

}  // namespace

bool shows_shape(const TapeValue& x, const AtenShape& shape) {
  return x.strides == dense_strides(x.shape) || regrouped(x, shape);
}

void lower_onnx_view(OnnxTape& tape, const OnnxNode& node, const OnnxKind& kind,
                     const std::vector<OnnxValue>& results) {
  const TapeValue x = tape.in(node, 0);
  if ((node.op == "Reshape" || node.op == "Flatten") && !shows_shape(x, results[0].shape))
    return copied(tape, node, x, results[0]);
  std::vector<TensorId> outputs;
  for (std::size_t k = 0; k < std::min(results.size(), node.outputs.size()); ++k) {
    const TensorId t =
        tape.tensor(node.outputs[k], TensorKind::activation, results[k].shape, x.dtype, tape[*x.tensor].storage);
    outputs.push_back(t);
    TapeValue& known = tape.add(node.outputs[k], results[k]);
    known.tensor = t;
    known.needs_gradient = x.needs_gradient;
    known.is_weight = x.is_weight;
    known.strides = strides_of(node, x, results[k].shape);
    if (is_whole_view(node.op)) known.gradient = x.gradient;
  }
  tape.op({.kind = std::string(kind.kind), .inputs = {*x.tensor}, .outputs = outputs, .is_view = true}, label_of(node));
  if (is_whole_view(node.op) || !x.needs_gradient) return;
  const bool is_repeated = node.op == "Expand";
  tape.on_backward([&tape, x, is_repeated, names = node.outputs, name = label_of(node)] {
    std::vector<TensorId> parts;
    for (const std::string& part : names) {
      const TapeValue* const made = tape.find(part);
      if (const auto gradient = made == nullptr ? std::nullopt : tape.gradient(*made)) parts.push_back(*gradient);
    }
    if (parts.empty()) return;
    if (is_repeated) return tape.summed(x, parts[0], name);
    const TensorId all = tape.gradient_like(x);
    tape.op({.kind = parts.size() > 1 ? "cat" : "slice_backward",
             .phase = Phase::backward,
             .inputs = parts,
             .outputs = {all}},
            name);
    tape.contribute(x, all, name);
  });
}

}  // namespace plimsoll
