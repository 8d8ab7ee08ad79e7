#include "traces/imports/onnx/onnx_tape.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "sim/io/input_error.h"

namespace plimsoll {

AtenShape dense_strides(const AtenShape& shape) {
  AtenShape strides(shape.size(), 1);
  for (std::size_t k = shape.size(); k-- > 1;) strides[k - 1] = strides[k] * std::max<std::int64_t>(1, shape[k]);
  return strides;
}

std::string label_of(const OnnxNode& node) {
  return node.name.empty() ? node.outputs[0] : node.name;
}

void OnnxTape::refuse(const std::string& key, const std::string& what) const {
  throw InputError(located(file_, {}, key, what));
}

std::int64_t OnnxTape::element_size(int dtype, const std::string& name) const {
  const auto word = onnx_dtype(dtype);
  if (!word) refuse(name, fmt::format("numbers of ONNX's type {}, which has no rule here", dtype));
  return *element_bytes(*word);
}

AtenShape OnnxTape::checked(const std::string& name, const std::vector<std::int64_t>& dims) const {
  for (const std::int64_t n : dims) {
    if (n < 0 || n > (std::int64_t{1} << 40)) refuse(name, fmt::format("an extent of {}", n));
  }
  return dims;
}

void OnnxTape::refuse_absurd(const std::string& name, const AtenShape& shape) const {
  double numbers = 1;
  for (const std::int64_t n : shape) numbers *= static_cast<double>(std::max<std::int64_t>(1, n));
  constexpr double most = 1e14;
  if (numbers > most) refuse(name, "absurdly large");
}

TensorId OnnxTape::tensor(const std::string& name, TensorKind kind, const AtenShape& shape, int dtype,
                          std::optional<StorageId> storage) {
  refuse_absurd(name, shape);
  constexpr double most_together = 4e17;  // so that bytes stay below 2^62
  sum_ += static_cast<double>(element_count(shape));
  if (sum_ > most_together) refuse(name, "absurdly large");
  const Bytes own{element_count(shape) * element_size(dtype, name)};
  if (!storage) {
    storage = id_at<StorageId>(made_.storages++);
    bytes_of_.push_back(own);
  }
  made_.tensors.push_back({.name = name,
                           .kind = kind,
                           .bytes = bytes_of_[storage->index],
                           .storage = *storage,
                           .shape = shape,
                           .dtype = std::string(*onnx_dtype(dtype))});
  return id_at<TensorId>(made_.tensors.size() - 1);
}

TensorId OnnxTape::gradient_like(const TapeValue& of) {
  return tensor(fmt::format("gradient {}", made_.tensors.size()), TensorKind::gradient, of.shape, of.dtype);
}

TapeValue& OnnxTape::add(const std::string& name, OnnxValue value) {
  refuse_absurd(name, value.shape);
  TapeValue known;
  static_cast<OnnxValue&>(known) = std::move(value);
  known.strides = dense_strides(known.shape);
  known.gradient = static_cast<std::uint32_t>(gradients_.size());
  gradients_.emplace_back();
  return values_.insert_or_assign(name, std::move(known)).first->second;
}

TapeValue& OnnxTape::fresh(const OnnxNode& node, const OnnxValue& value, bool needs) {
  const TensorId t = tensor(node.outputs[0], TensorKind::activation, value.shape, value.dtype);
  TapeValue& known = add(node.outputs[0], value);
  known.tensor = t;
  known.needs_gradient = needs;
  return known;
}

TapeValue& OnnxTape::in(const OnnxNode& node, std::size_t k) {
  if (k >= node.inputs.size() || node.inputs[k].empty()) refuse(node, fmt::format("needs an input {}", k));
  return values_.at(node.inputs[k]);
}

bool OnnxTape::has_tensors(const OnnxNode& node) const {
  return std::ranges::any_of(node.inputs,
                             [&](const std::string& name) { return !name.empty() && values_.at(name).tensor; });
}

bool OnnxTape::any_needs(const OnnxNode& node) const {
  return std::ranges::any_of(node.inputs,
                             [&](const std::string& name) { return !name.empty() && values_.at(name).needs_gradient; });
}

void OnnxTape::op(TapeOp made, const std::string& name) {
  std::int64_t moved = 0;
  std::set<TensorId> seen;
  for (const auto* list : {&made.inputs, &made.outputs}) {
    for (const TensorId t : *list) {
      const Tensor& of = made_[t];
      if (seen.insert(t).second)
        moved += std::min(element_count(of.shape) * element_bytes(of.dtype).value_or(1), of.bytes.count);
    }
  }
  made_.ops.push_back({.name = fmt::format("{}.{}", name, made_.ops.size()),
                       .kind = std::move(made.kind),
                       .phase = made.phase,
                       .flops = Flops{made.flops},
                       .bytes_moved = Bytes{made.is_view ? 0 : moved},
                       .inputs = std::move(made.inputs),
                       .outputs = std::move(made.outputs)});
}

void OnnxTape::on_backward(std::uint32_t of, std::function<void(TensorId)> then) {
  backwards_.push_back([this, of, then = std::move(then)] {
    if (gradients_[of]) then(*gradients_[of]);
  });
}

void OnnxTape::contribute(const TapeValue& to, TensorId gradient, const std::string& name) {
  if (!to.needs_gradient) return;
  std::optional<TensorId>& sum = gradients_[to.gradient];
  if (!sum) {
    sum = gradient;
    return;
  }
  const TensorId both = gradient_like(to);
  op({.kind = "add", .phase = Phase::backward, .inputs = {*sum, gradient}, .outputs = {both}}, name);
  sum = both;
}

void OnnxTape::summed(const TapeValue& to, TensorId gradient, const std::string& name) {
  const TensorId made = gradient_like(to);
  op({.kind = "sum", .phase = Phase::backward, .inputs = {gradient}, .outputs = {made}}, name);
  contribute(to, made, name);
}

const TapeValue* OnnxTape::find(const std::string& name) const {
  const auto place = values_.find(name);
  return place == values_.end() ? nullptr : &place->second;
}

void OnnxTape::add_parameter(const OnnxTensor& weight) {
  TapeValue& known = add(weight.name, {checked(weight.name, weight.dims), weight.dtype});
  known.is_weight = known.needs_gradient = weight.dtype != onnx_integer && weight.dtype != onnx_bool;
  known.tensor = tensor(weight.name, TensorKind::parameter, known.shape, weight.dtype);
  if (known.needs_gradient) owners_.emplace_back(known.gradient, *known.tensor);
}

void OnnxTape::add_input(const OnnxInput& input, const AtenShape& shape) {
  TapeValue& known = add(input.name, {shape, input.dtype});
  known.tensor = tensor(input.name, TensorKind::input, shape, input.dtype);
}

void OnnxTape::run_backward() {
  for (std::size_t b = backwards_.size(); b-- > 0;) backwards_[b]();
}

Graph OnnxTape::finished(std::string name) && {
  made_.name = std::move(name);
  name_gradients();
  mark_saved();
  return std::move(made_);
}

void OnnxTape::name_gradients() {
  for (const auto& [gradient, parameter] : owners_) {
    if (!gradients_[gradient]) {
      ++untrained_;
      continue;
    }
    Tensor& made = made_.tensors[gradients_[gradient]->index];
    if (made.gradient_of || made.kind == TensorKind::parameter_gradient) continue;
    made.kind = TensorKind::parameter_gradient;
    made.gradient_of = parameter;
    made.name = "gradient of " + made_[parameter].name;
  }
}

void OnnxTape::mark_saved() {
  std::vector<bool> in_forward(made_.storages, false), in_backward(made_.storages, false);
  for (const Op& each : made_.ops) {
    for (const TensorId t : each.inputs)
      (is_backward(each.phase) ? in_backward : in_forward)[made_[t].storage.index] = true;
  }
  for (Op& each : made_.ops) {
    if (is_backward(each.phase)) continue;
    for (const TensorId t : each.outputs) {
      if (in_backward[made_[t].storage.index] && !in_forward[made_[t].storage.index]) each.saved.push_back(t);
    }
  }
}

}  // namespace plimsoll
