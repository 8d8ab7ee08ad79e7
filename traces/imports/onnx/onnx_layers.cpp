#include "traces/imports/onnx/onnx_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

namespace plimsoll {
namespace {

/// Of a result that PyTorch makes with the axes in the order that they have in memory in `of`.
AtenShape strides_like(const TapeValue& of, const AtenShape& shape) {
  std::vector<std::size_t> order(shape.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return of.strides[a] > of.strides[b]; });
  AtenShape strides(shape.size(), 1);
  for (std::size_t k = order.size(); k-- > 1;)
    strides[order[k - 1]] = strides[order[k]] * std::max<std::int64_t>(1, shape[order[k]]);
  return strides;
}

/// Of a batch of matrices: as PyTorch gives it to the product, with its samples in one axis, which may need a copy.
TapeValue merged(OnnxTape& tape, const OnnxNode& node, const TapeValue& x) {
  bool is_one = true;
  for (std::size_t k = 0; k + 3 < x.shape.size(); ++k)
    is_one = is_one && x.strides[k] == x.shape[k + 1] * x.strides[k + 1];
  if (is_one || x.shape.size() < 4) return x;
  TapeValue y = x;
  y.tensor = tape.tensor(fmt::format("{} in order", tape[*x.tensor].name), TensorKind::activation, x.shape, x.dtype);
  y.strides = dense_strides(x.shape);
  tape.op({.kind = "clone", .inputs = {*x.tensor}, .outputs = {*y.tensor}}, label_of(node));
  return y;
}

/// With its rows in one axis, as PyTorch gives it to a layer: copied where that takes it.
TapeValue in_rows(OnnxTape& tape, const OnnxNode& node, const TapeValue& x) {
  if (x.shape.size() < 3 ||
      shows_shape(x, {element_count(x.shape) / std::max<std::int64_t>(1, x.shape.back()), x.shape.back()}))
    return x;
  TapeValue y = x;
  y.tensor = tape.tensor(fmt::format("{} in rows", tape[*x.tensor].name), TensorKind::activation, x.shape, x.dtype);
  y.strides = dense_strides(x.shape);
  tape.op({.kind = "clone", .inputs = {*x.tensor}, .outputs = {*y.tensor}}, label_of(node));
  return y;
}

void product(OnnxTape& tape, const OnnxNode& node, const OnnxValue& result) {
  TapeValue a = tape.in(node, 0), b = tape.in(node, 1);
  const bool has_bias = node.op != "MatMul" && tape.has(node, 2);
  if (!a.tensor || !b.tensor) tape.refuse(node, "a product with constants has no rule here");
  const bool is_batched = b.shape.size() > 2;
  if (!is_batched) a = in_rows(tape, node, a);
  if (is_batched) {
    a = merged(tape, node, a);
    b = merged(tape, node, b);
  }
  const TapeValue y = tape.fresh(node, result, tape.any_needs(node));
  const double flops = 2.0 * static_cast<double>(element_count(a.shape)) * static_cast<double>(result.shape.back());
  std::vector<TensorId> inputs;
  std::optional<TapeValue> bias;
  if (has_bias) bias = tape.in(node, 2);
  if (bias && bias->tensor) inputs.push_back(*bias->tensor);
  inputs.insert(inputs.end(), {*a.tensor, *b.tensor});
  tape.op({.kind = is_batched ? "bmm"
                   : has_bias ? "addmm"
                              : "mm",
           .inputs = inputs,
           .outputs = {*y.tensor},
           .flops = flops},
          label_of(node));
  tape.on_backward(y.gradient, [=, &tape, name = label_of(node)](TensorId gy) {
    const std::string kind = is_batched ? "bmm" : "mm";
    for (const auto& [of, other] : {std::pair(&a, &b), std::pair(&b, &a)}) {
      if (!of->needs_gradient) continue;
      const TensorId made = tape.gradient_like(*of);
      tape.op(
          {.kind = kind, .phase = Phase::backward, .inputs = {gy, *other->tensor}, .outputs = {made}, .flops = flops},
          name);
      tape.contribute(*of, made, name);
    }
    if (bias && bias->needs_gradient) tape.summed(*bias, gy, name);
  });
}

void convolution(OnnxTape& tape, const OnnxNode& node, const OnnxValue& result) {
  const TapeValue x = tape.in(node, 0), w = tape.in(node, 1);
  if (!x.tensor || !w.tensor) tape.refuse(node, "a convolution with constants has no rule here");
  std::optional<TapeValue> bias;
  if (tape.has(node, 2)) bias = tape.in(node, 2);
  const TapeValue y = tape.fresh(node, result, tape.any_needs(node));
  const AtenShape& wide = node.op == "ConvTranspose" ? x.shape : result.shape;  // each number of which meets a filter
  const double flops = 2.0 * static_cast<double>(element_count(wide)) *
                       static_cast<double>(element_count(w.shape) / std::max<std::int64_t>(1, w.shape[0]));
  std::vector<TensorId> inputs{*x.tensor, *w.tensor};
  if (bias && bias->tensor) inputs.push_back(*bias->tensor);
  tape.op({.kind = "convolution", .inputs = inputs, .outputs = {*y.tensor}, .flops = flops}, label_of(node));
  tape.on_backward(y.gradient, [=, &tape, name = label_of(node)](TensorId gy) {
    TapeOp made{.kind = "convolution_backward", .phase = Phase::backward, .inputs = {gy, *x.tensor, *w.tensor}};
    std::vector<std::pair<TapeValue, TensorId>> of;
    for (const TapeValue& each : {x, w}) {
      if (!each.needs_gradient) continue;
      of.emplace_back(each, tape.gradient_like(each));
      made.flops += flops;
    }
    if (bias && bias->needs_gradient) of.emplace_back(*bias, tape.gradient_like(*bias));
    for (const auto& [known, gradient] : of) made.outputs.push_back(gradient);
    tape.op(std::move(made), name);
    for (const auto& [known, gradient] : of) tape.contribute(known, gradient, name);
  });
}

void norm(OnnxTape& tape, const OnnxNode& node, const OnnxKind& kind, const OnnxValue& result) {
  const TapeValue x = tape.in(node, 0);
  if (!x.tensor) tape.refuse(node, "a norm of constants has no rule here");
  std::vector<TapeValue> weights;
  for (std::size_t k = 1; k < std::min<std::size_t>(3, node.inputs.size()); ++k) {
    if (!node.inputs[k].empty() && tape.in(node, k).tensor) weights.push_back(tape.in(node, k));
  }
  const TapeValue y = tape.fresh(node, result, tape.any_needs(node));
  AtenShape rows = x.shape;
  if (kind.rule == OnnxRule::batch_norm) rows = {x.shape.size() > 1 ? x.shape[1] : 1};
  if (kind.rule == OnnxRule::instance_norm) rows.resize(std::min<std::size_t>(2, rows.size()));
  if (kind.rule == OnnxRule::layer_norm && !rows.empty()) rows.back() = 1;
  std::vector<TensorId> inputs{*x.tensor}, statistics;
  for (const TapeValue& each : weights) inputs.push_back(*each.tensor);
  for (const char* what : {"mean", "deviation"}) {
    statistics.push_back(
        tape.tensor(fmt::format("{} {}", node.outputs[0], what), TensorKind::activation, rows, onnx_float));
  }
  tape.op({.kind = std::string(kind.kind), .inputs = inputs, .outputs = {*y.tensor, statistics[0], statistics[1]}},
          label_of(node));
  tape.on_backward(y.gradient, [=, &tape, backward = std::string(kind.kind) + "_backward",
                                name = label_of(node)](TensorId gy) {
    TapeOp made{.kind = backward, .phase = Phase::backward, .inputs = {gy, *x.tensor, statistics[0], statistics[1]}};
    for (const TapeValue& each : weights) made.inputs.push_back(*each.tensor);
    std::vector<std::pair<TapeValue, TensorId>> of;
    if (x.needs_gradient) of.emplace_back(x, tape.gradient_like(x));
    for (const TapeValue& each : weights) of.emplace_back(each, tape.gradient_like(each));
    for (const auto& [known, gradient] : of) made.outputs.push_back(gradient);
    tape.op(std::move(made), name);
    for (const auto& [known, gradient] : of) tape.contribute(known, gradient, name);
  });
}

void binary(OnnxTape& tape, const OnnxNode& node, const OnnxKind& kind, const OnnxValue& result) {
  std::vector<TapeValue> operands;
  for (std::size_t k = 0; k < node.inputs.size(); ++k) operands.push_back(tape.in(node, k));
  TapeValue& fresh = tape.fresh(node, result, tape.any_needs(node) && result.dtype != onnx_bool);
  const auto whole =
      std::ranges::find_if(operands, [&](const TapeValue& each) { return each.tensor && each.shape == result.shape; });
  if (whole != operands.end()) fresh.strides = strides_like(*whole, result.shape);
  const TapeValue y = fresh;
  std::vector<TensorId> inputs;
  for (const TapeValue& each : operands) {
    if (each.tensor && std::ranges::find(inputs, *each.tensor) == inputs.end()) inputs.push_back(*each.tensor);
  }
  tape.op({.kind = std::string(kind.kind), .inputs = inputs, .outputs = {*y.tensor}}, label_of(node));
  if (!y.needs_gradient) return;
  tape.on_backward(y.gradient, [=, &tape, what = std::string(kind.kind), name = label_of(node)](TensorId gy) {
    for (std::size_t k = 0; k < operands.size(); ++k) {
      const TapeValue& to = operands[k];
      if (!to.needs_gradient) continue;
      TensorId gradient = gy;
      const bool passes = what == "add" || (what == "sub" && k == 0);
      if (!passes) {
        std::vector<TensorId> reads{gy};
        const bool reads_both = what == "div" && k == 1;
        for (std::size_t j = 0; j < operands.size(); ++j) {
          const bool is_read = what == "pow"     ? j == 0
                               : what == "where" ? j == 0
                               : what == "sub"   ? false
                                                 : j != k || reads_both;
          if (is_read && operands[j].tensor && (what != "div" || k == 1 || j == 1))
            reads.push_back(*operands[j].tensor);
        }
        gradient = tape.tensor(fmt::format("gradient {}", tape.tensors()), TensorKind::gradient, y.shape, y.dtype);
        tape.op(
            {.kind = what == "sub" ? "neg" : what, .phase = Phase::backward, .inputs = reads, .outputs = {gradient}},
            name);
      }
      if (to.shape == y.shape) {
        tape.contribute(to, gradient, name);
      } else {
        tape.summed(to, gradient, name);
      }
    }
  });
}

std::size_t axis_of_lookup(const OnnxNode& node, std::size_t rank) {  // its shape rule has checked it
  const auto axis = node.attributes.find("axis");
  const std::int64_t given = axis == node.attributes.end() ? 0 : axis->second.i;
  return static_cast<std::size_t>(given < 0 ? given + static_cast<std::int64_t>(rank) : given);
}

void lookup(OnnxTape& tape, const OnnxNode& node, const OnnxValue& result) {
  const TapeValue table = tape.in(node, 0), rows = tape.in(node, 1);
  if (!table.tensor) tape.refuse(node, "rows of constants have no rule here");
  if (!rows.tensor && rows.shape.empty()) {  // one index, which is known: a view
    const TensorId t =
        tape.tensor(node.outputs[0], TensorKind::activation, result.shape, table.dtype, tape[*table.tensor].storage);
    TapeValue& y = tape.add(node.outputs[0], result);
    y.tensor = t;
    y.needs_gradient = table.needs_gradient;
    y.strides = table.strides;
    y.strides.erase(y.strides.begin() + static_cast<std::ptrdiff_t>(axis_of_lookup(node, table.shape.size())));
    const std::uint32_t gradient = y.gradient;
    tape.op({.kind = "select", .inputs = {*table.tensor}, .outputs = {t}, .is_view = true}, label_of(node));
    tape.on_backward(gradient, [=, &tape, name = label_of(node)](TensorId gy) {
      const TensorId all = tape.gradient_like(table);
      tape.op({.kind = "select_backward", .phase = Phase::backward, .inputs = {gy}, .outputs = {all}}, name);
      tape.contribute(table, all, name);
    });
    return;
  }
  const TapeValue y = tape.fresh(node, result, table.needs_gradient);
  std::vector<TensorId> inputs{*table.tensor};
  if (rows.tensor) inputs.push_back(*rows.tensor);  // else positions, say, that are known
  tape.op({.kind = "embedding", .inputs = inputs, .outputs = {*y.tensor}}, label_of(node));
  Op& made = tape.last_op();  // of the table it reads the rows that it returns
  const std::int64_t unread = tape[*table.tensor].bytes.count - tape[*y.tensor].bytes.count;
  if (unread > 0) made.bytes_moved = Bytes{made.bytes_moved->count - unread};
  tape.on_backward(y.gradient, [=, &tape, name = label_of(node)](TensorId gy) {
    const TensorId all = tape.gradient_like(table);
    std::vector<TensorId> reads{gy};
    if (rows.tensor) reads.push_back(*rows.tensor);
    tape.op({.kind = "embedding_dense_backward", .phase = Phase::backward, .inputs = reads, .outputs = {all}}, name);
    tape.contribute(table, all, name);
  });
}

void concatenation(OnnxTape& tape, const OnnxNode& node, const OnnxValue& result) {
  std::vector<TapeValue> parts;
  std::vector<TensorId> inputs;
  for (std::size_t k = 0; k < node.inputs.size(); ++k) {
    parts.push_back(tape.in(node, k));
    if (parts.back().tensor) inputs.push_back(*parts.back().tensor);
  }
  const TapeValue y = tape.fresh(node, result, tape.any_needs(node));
  tape.op({.kind = "cat", .inputs = inputs, .outputs = {*y.tensor}}, label_of(node));
  tape.on_backward(y.gradient, [=, &tape, name = label_of(node)](TensorId gy) {
    for (const TapeValue& part : parts) {
      if (!part.needs_gradient) continue;
      const TensorId made = tape.gradient_like(part);
      tape.op({.kind = "slice", .phase = Phase::backward, .inputs = {gy}, .outputs = {made}}, name);
      tape.contribute(part, made, name);
    }
  });
}

/// With an output that the backward alone reads: a mask, places of maxima.
void marked(OnnxTape& tape, const OnnxNode& node, const OnnxKind& kind, const OnnxValue& result) {
  const TapeValue x = tape.in(node, 0);
  if (!x.tensor) tape.refuse(node, "of constants it has no rule here");
  const bool is_pool = kind.rule == OnnxRule::max_pool;
  TapeValue& fresh = tape.fresh(node, result, x.needs_gradient);
  if (!is_pool) fresh.strides = strides_like(x, x.shape);
  const TapeValue y = fresh;
  const TensorId marks =
      tape.tensor(node.outputs[0] + " marks", TensorKind::activation, result.shape, is_pool ? onnx_integer : onnx_bool);
  tape.op({.kind = std::string(kind.kind), .inputs = {*x.tensor}, .outputs = {*y.tensor, marks}}, label_of(node));
  tape.on_backward(y.gradient,
                   [=, &tape, backward = std::string(kind.kind) + "_backward", name = label_of(node)](TensorId gy) {
                     const TensorId made = tape.gradient_like(x);
                     std::vector<TensorId> reads{gy, marks};
                     if (is_pool) reads.push_back(*x.tensor);
                     tape.op({.kind = backward, .phase = Phase::backward, .inputs = reads, .outputs = {made}}, name);
                     tape.contribute(x, made, name);
                   });
}

/// With the logarithms of sums that PyTorch's kernels keep in place of the scores.
void attention(OnnxTape& tape, const OnnxNode& node, const OnnxKind& kind, const OnnxValue& result) {
  const TapeValue q = tape.in(node, 0), k = tape.in(node, 1), v = tape.in(node, 2);
  if (!q.tensor || !k.tensor || !v.tensor) tape.refuse(node, "attention of constants has no rule here");
  TapeValue& y = tape.fresh(node, result, tape.any_needs(node));
  y.strides = strides_like(q, y.shape);
  AtenShape rows = result.shape;
  rows.pop_back();
  const TensorId sums = tape.tensor(node.outputs[0] + " sums", TensorKind::activation, rows, onnx_float);
  std::vector<TensorId> inputs{*q.tensor, *k.tensor, *v.tensor};
  if (tape.has(node, 3) && tape.in(node, 3).tensor) inputs.push_back(*tape.in(node, 3).tensor);
  const double positions = static_cast<double>(k.shape.back());
  const double by_key = 2.0 * static_cast<double>(element_count(q.shape)) * positions,
               by_value = 2.0 * static_cast<double>(element_count(result.shape)) * positions;
  tape.op({.kind = std::string(kind.kind), .inputs = inputs, .outputs = {*y.tensor, sums}, .flops = by_key + by_value},
          label_of(node));
  tape.on_backward(y.gradient, [=, &tape, y = y, backward = std::string(kind.kind) + "_backward",
                                name = label_of(node)](TensorId gy) {
    TapeOp made{.kind = backward, .phase = Phase::backward, .inputs = inputs, .flops = 3 * by_key + 2 * by_value};
    made.inputs.insert(made.inputs.end(), {gy, *y.tensor, sums});
    std::vector<std::pair<TapeValue, TensorId>> of;
    for (const TapeValue& each : {q, k, v}) {
      if (each.needs_gradient) of.emplace_back(each, tape.gradient_like(each));
    }
    for (const auto& [known, gradient] : of) made.outputs.push_back(gradient);
    tape.op(std::move(made), name);
    for (const auto& [known, gradient] : of) tape.contribute(known, gradient, name);
  });
}

/// Numbers at places, which its backward reads.
void picked(OnnxTape& tape, const OnnxNode& node, const OnnxKind& kind, const OnnxValue& result) {
  const TapeValue x = tape.in(node, 0), places = tape.in(node, 1);
  if (!x.tensor) tape.refuse(node, "of constants it has no rule here");
  const TapeValue y = tape.fresh(node, result, x.needs_gradient);
  std::vector<TensorId> inputs{*x.tensor};
  if (places.tensor) inputs.push_back(*places.tensor);
  tape.op({.kind = std::string(kind.kind), .inputs = inputs, .outputs = {*y.tensor}}, label_of(node));
  tape.on_backward(y.gradient,
                   [=, &tape, backward = std::string(kind.kind) + "_backward", name = label_of(node)](TensorId gy) {
                     const TensorId made = tape.gradient_like(x);
                     std::vector<TensorId> reads{gy};
                     if (places.tensor) reads.push_back(*places.tensor);
                     tape.op({.kind = backward, .phase = Phase::backward, .inputs = reads, .outputs = {made}}, name);
                     tape.contribute(x, made, name);
                   });
}

/// A copy with numbers at places put in.
void scattered(OnnxTape& tape, const OnnxNode& node, const OnnxKind& kind, const OnnxValue& result) {
  const TapeValue into = tape.in(node, 0), places = tape.in(node, 1), put = tape.in(node, 2);
  const TapeValue y = tape.fresh(node, result, tape.any_needs(node));
  std::vector<TensorId> inputs;
  for (const TapeValue& each : {into, places, put}) {
    if (each.tensor) inputs.push_back(*each.tensor);
  }
  tape.op({.kind = std::string(kind.kind), .inputs = inputs, .outputs = {*y.tensor}}, label_of(node));
  tape.on_backward(y.gradient, [=, &tape, what = std::string(kind.kind), name = label_of(node)](TensorId gy) {
    std::vector<TensorId> reads{gy};
    if (places.tensor) reads.push_back(*places.tensor);
    for (const auto& [to, backward] : {std::pair(into, what), std::pair(put, std::string("index"))}) {
      if (!to.needs_gradient) continue;
      const TensorId made = tape.gradient_like(to);
      tape.op({.kind = backward, .phase = Phase::backward, .inputs = reads, .outputs = {made}}, name);
      tape.contribute(to, made, name);
    }
  });
}

enum class BackwardReads : std::uint8_t { nothing, input, result, both };

BackwardReads reads_of(std::string_view what, OnnxRule rule) {
  constexpr std::array<std::string_view, 9> by_result{"relu", "sigmoid",  "tanh",         "sqrt", "rsqrt",
                                                      "exp",  "_softmax", "_log_softmax", "elu"};
  constexpr std::array<std::string_view, 2> by_nothing{"neg", "_to_copy"};
  if (rule == OnnxRule::extreme) return BackwardReads::both;
  if (std::ranges::find(by_result, what) != by_result.end()) return BackwardReads::result;
  const bool is_free =
      rule == OnnxRule::mean || rule == OnnxRule::moved || std::ranges::find(by_nothing, what) != by_nothing.end();
  return is_free ? BackwardReads::nothing : BackwardReads::input;
}

std::string backward_of(std::string_view what, OnnxRule rule) {
  if (what == "relu") return "threshold_backward";
  return rule == OnnxRule::mean ? "div" : std::string(what) + "_backward";
}

void unary(OnnxTape& tape, const OnnxNode& node, const OnnxKind& kind, const OnnxValue& result) {
  const TapeValue x = tape.in(node, 0);
  if (!x.tensor) tape.refuse(node, "of constants it has no rule here");
  const bool is_stepped = kind.kind == "floor" || kind.kind == "sign" || result.dtype == onnx_bool ||
                          result.dtype == onnx_integer;  // without a gradient
  TapeValue& fresh = tape.fresh(node, result, x.needs_gradient && !is_stepped);
  if (kind.rule == OnnxRule::unary && result.shape == x.shape) fresh.strides = strides_like(x, x.shape);
  const TapeValue y = fresh;
  tape.op({.kind = std::string(kind.kind), .inputs = {*x.tensor}, .outputs = {*y.tensor}}, label_of(node));
  if (!y.needs_gradient) return;
  const BackwardReads what = reads_of(kind.kind, kind.rule);
  tape.on_backward(y.gradient,
                   [=, &tape, backward = backward_of(kind.kind, kind.rule), name = label_of(node)](TensorId gy) {
                     std::vector<TensorId> reads{gy};
                     if (what == BackwardReads::result || what == BackwardReads::both) reads.push_back(*y.tensor);
                     if (what == BackwardReads::input || what == BackwardReads::both) reads.push_back(*x.tensor);
                     const TensorId made = tape.gradient_like(x);
                     tape.op({.kind = backward, .phase = Phase::backward, .inputs = reads, .outputs = {made}}, name);
                     tape.contribute(x, made, name);
                   });
}

/// Of the numbers of its input and no others: a dropout of nothing, a cast to what it is.
bool changes_nothing(OnnxTape& tape, const OnnxNode& node, const OnnxKind& kind, const OnnxValue& result) {
  const TapeValue& x = tape.in(node, 0);
  if (!x.tensor) return false;
  if (kind.rule == OnnxRule::conversion) return result.dtype == x.dtype;
  if (node.op == "Pad") return result.shape == x.shape;
  if (kind.rule != OnnxRule::dropout || !tape.has(node, 1)) return false;
  return tape.in(node, 1).scalar == 0.0F;
}

}  // namespace

void lower_onnx_node(OnnxTape& tape, const OnnxNode& node, const OnnxKind& kind,
                     const std::vector<OnnxValue>& results) {
  if (changes_nothing(tape, node, kind, results[0]))
    return lower_onnx_view(tape, node, {"Identity", "alias", OnnxRule::view}, results);
  switch (kind.rule) {
    case OnnxRule::view:
      return lower_onnx_view(tape, node, kind, results);
    case OnnxRule::product:
      return product(tape, node, results[0]);
    case OnnxRule::attention:
      return attention(tape, node, kind, results[0]);
    case OnnxRule::convolution:
    case OnnxRule::transposed_convolution:
      return convolution(tape, node, results[0]);
    case OnnxRule::batch_norm:
    case OnnxRule::instance_norm:
    case OnnxRule::layer_norm:
      return norm(tape, node, kind, results[0]);
    case OnnxRule::binary:
      return binary(tape, node, kind, results[0]);
    case OnnxRule::lookup:
      return lookup(tape, node, results[0]);
    case OnnxRule::picked:
      return picked(tape, node, kind, results[0]);
    case OnnxRule::scattered:
      return scattered(tape, node, kind, results[0]);
    case OnnxRule::concatenation:
      return concatenation(tape, node, results[0]);
    case OnnxRule::max_pool:
    case OnnxRule::dropout:
      return marked(tape, node, kind, results[0]);
    default:
      return unary(tape, node, kind, results[0]);
  }
}

}  // namespace plimsoll
