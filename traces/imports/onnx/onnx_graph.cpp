// From an ONNX model, which has a forward only, to an iteration: ops have the names of PyTorch's dispatcher and work by
// the exporter's rules, and each one's backward reads what PyTorch's derivatives.yaml says. A loss is added: the cross
// entropy of the first result.

#include "traces/imports/onnx/onnx_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <set>
#include <unordered_map>

#include "sim/io/input_error.h"
#include "sim/io/json/json_cursor.h"
#include "sim/io/text_file.h"
#include "traces/imports/onnx/onnx_shapes.h"
#include "traces/trace_parts.h"

namespace plimsoll {
namespace {

constexpr int onnx_float = 1, onnx_integer = 7, onnx_bool = 9;

class OnnxLowering {
 public:
  OnnxLowering(const OnnxModel& model, std::string file, ImportNumbers& numbers)
      : model_(model), file_(std::move(file)), numbers_(numbers) {}

  Graph graph() && {
    made_.name = std::filesystem::path(file_).stem().string();
    find_gelu();
    find_needed();
    for (const OnnxTensor& weight : model_.weights) add_weight(weight);
    for (const OnnxInput& input : model_.inputs) add_input(input);
    for (std::size_t n = 0; n < model_.nodes.size(); ++n) node(n);
    loss();
    for (std::size_t b = backwards_.size(); b-- > 0;) backwards_[b]();
    name_gradients();
    mark_saved();
    write_source();
    return std::move(made_);
  }

 private:
  using Names = std::vector<std::string>;

  struct Known : OnnxValue {
    std::optional<TensorId> tensor;  ///< unset: numbers alone
    std::uint32_t gradient = 0;      ///< which gradient is its: a view of all numbers has that of what it shows
    bool needs_gradient = false, is_weight = false;
    AtenShape strides;
  };

  [[noreturn]] void refuse(const std::string& key, const std::string& what) const {
    throw InputError(located(file_, {}, key, what));
  }

  // --- what is given

  static AtenShape dense_strides(const AtenShape& shape) {
    AtenShape strides(shape.size(), 1);
    for (std::size_t k = shape.size(); k-- > 1;) strides[k - 1] = strides[k] * std::max<std::int64_t>(1, shape[k]);
    return strides;
  }

  std::int64_t each(int dtype, const std::string& name) const {
    const auto word = onnx_dtype(dtype);
    if (!word) refuse(name, fmt::format("numbers of ONNX's type {}, which has no rule here", dtype));
    return *element_bytes(*word);
  }

  TensorId tensor(const std::string& name, TensorKind kind, const AtenShape& shape, int dtype,
                  std::optional<StorageId> storage = {}) {
    refuse_absurd(name, shape);
    constexpr double most_together = 4e17;  // so that bytes stay below 2^62
    sum_ += static_cast<double>(element_count(shape));
    if (sum_ > most_together) refuse(name, "absurdly large");
    const Bytes own{element_count(shape) * each(dtype, name)};
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

  AtenShape checked(const std::string& name, const std::vector<std::int64_t>& dims) const {
    for (const std::int64_t n : dims) {
      if (n < 0 || n > (std::int64_t{1} << 40)) refuse(name, fmt::format("an extent of {}", n));
    }
    return dims;
  }

  void refuse_absurd(const std::string& name, const AtenShape& shape) const {
    double numbers = 1;
    for (const std::int64_t n : shape) numbers *= static_cast<double>(std::max<std::int64_t>(1, n));
    constexpr double most = 1e14;
    if (numbers > most) refuse(name, "absurdly large");
  }

  Known& add(const std::string& name, OnnxValue value) {
    refuse_absurd(name, value.shape);
    Known known;
    static_cast<OnnxValue&>(known) = std::move(value);
    known.strides = dense_strides(known.shape);
    known.gradient = static_cast<std::uint32_t>(gradients_.size());
    gradients_.emplace_back();
    return values_.insert_or_assign(name, std::move(known)).first->second;
  }

  void add_weight(const OnnxTensor& weight) {
    if (!read_.contains(weight.name)) return;
    Known& known = add(weight.name, {checked(weight.name, weight.dims), weight.dtype, weight.numbers});
    if (weight.numbers) return;
    if (statistics_.contains(weight.name)) {
      left_out_bytes_ += element_count(known.shape) * each(weight.dtype, weight.name);
      return;
    }
    known.is_weight = known.needs_gradient = weight.dtype != onnx_integer && weight.dtype != onnx_bool;
    known.tensor = tensor(weight.name, TensorKind::parameter, known.shape, weight.dtype);
    if (known.needs_gradient) owners_.emplace_back(known.gradient, *known.tensor);
  }

  void add_input(const OnnxInput& input) {
    if (values_.contains(input.name) || !read_.contains(input.name)) return;  // a weight that may be replaced
    AtenShape shape;
    for (const OnnxExtent& extent : input.shape) shape.push_back(extent_of(input, extent));
    Known& known = add(input.name, {checked(input.name, shape), input.dtype, std::nullopt});
    known.tensor = tensor(input.name, TensorKind::input, known.shape, input.dtype);
  }

  std::int64_t extent_of(const OnnxInput& input, const OnnxExtent& extent) {
    if (!extent.symbol.empty()) {
      if (const auto given = numbers_.asked(extent.symbol)) return *given;
      refuse(input.name, fmt::format("its axis '{}' has no size, expected --set {}=N", extent.symbol, extent.symbol));
    }
    if (!extent.value || *extent.value < 0)
      refuse(input.name, "an axis without size or name; export the model with one");
    return *extent.value;
  }

  // --- patterns

  /// x / sqrt(2), its error function, 1 more, times x, half of it: GELU, as PyTorch exports it before opset 20.
  void find_gelu() {
    std::unordered_map<std::string, std::vector<std::size_t>> readers;
    std::unordered_map<std::string, std::size_t> makers;
    for (std::size_t n = 0; n < model_.nodes.size(); ++n) {
      for (const std::string& name : model_.nodes[n].inputs) readers[name].push_back(n);
      for (const std::string& name : model_.nodes[n].outputs) makers[name] = n;
    }
    constexpr std::size_t nobody = ~std::size_t{0};
    const auto only_reader = [&](std::size_t n, std::string_view op) {
      if (n == nobody || model_.nodes[n].outputs.size() != 1) return nobody;
      const auto place = readers.find(model_.nodes[n].outputs[0]);
      if (place == readers.end() || place->second.size() != 1) return nobody;
      return model_.nodes[place->second[0]].op == op ? place->second[0] : nobody;
    };
    for (std::size_t n = 0; n < model_.nodes.size(); ++n) {
      if (model_.nodes[n].op != "Erf" || model_.nodes[n].inputs.size() != 1) continue;
      const auto divided = makers.find(model_.nodes[n].inputs[0]);
      if (divided == makers.end() || model_.nodes[divided->second].op != "Div") continue;
      const std::size_t added = only_reader(n, "Add"), times = only_reader(added, "Mul");
      const std::size_t halved = only_reader(times, "Mul");
      if (halved == nobody || model_.nodes[divided->second].inputs.empty()) continue;
      const std::string& x = model_.nodes[divided->second].inputs[0];
      if (std::ranges::count(model_.nodes[times].inputs, x) != 1) continue;
      for (const std::size_t part : {divided->second, n, added, times}) skipped_.insert(part);
      gelu_[halved] = x;
    }
  }

  void find_needed() {
    for (std::size_t n = 0; n < model_.nodes.size(); ++n) {
      const OnnxNode& node = model_.nodes[n];
      for (const std::string& name : node.inputs) read_.insert(name);
      if (node.op != "BatchNormalization") continue;
      for (std::size_t k = 3; k < node.inputs.size(); ++k) statistics_.insert(node.inputs[k]);
    }
    for (const std::string& name : model_.outputs) read_.insert(name);
  }

  // --- nodes

  void node(std::size_t n) {
    if (skipped_.contains(n)) return;
    OnnxNode each = model_.nodes[n];
    if (const auto fused = gelu_.find(n); fused != gelu_.end()) {
      each.op = "Gelu";
      each.inputs = {fused->second};
    }
    const OnnxKind* const kind = each.domain.empty() || each.domain == "ai.onnx" ? onnx_kind(each.op) : nullptr;
    if (kind == nullptr) {
      refuse_onnx_node(
          file_, each,
          each.domain.empty() ? "no rule for this operator" : "no rule for operators of domain " + each.domain);
    }
    std::vector<const OnnxValue*> inputs;
    for (const std::string& name : each.inputs) {
      const auto place = values_.find(name);
      if (!name.empty() && place == values_.end())
        refuse_onnx_node(file_, each, fmt::format("no such value: '{}'", name));
      inputs.push_back(name.empty() ? nullptr : &place->second);
    }
    if (each.outputs.empty()) refuse_onnx_node(file_, each, "without a result");
    const std::vector<OnnxValue> results = onnx_results(each, inputs, file_);
    run(each, *kind, results);
  }

  Known& in(const OnnxNode& node, std::size_t k) {
    if (k >= node.inputs.size() || node.inputs[k].empty())
      refuse_onnx_node(file_, node, fmt::format("needs an input {}", k));
    return values_.at(node.inputs[k]);
  }

  bool has_tensors(const OnnxNode& node) const {
    return std::ranges::any_of(node.inputs,
                               [&](const std::string& name) { return !name.empty() && values_.at(name).tensor; });
  }

  void run(const OnnxNode& node, const OnnxKind& kind, const std::vector<OnnxValue>& results) {
    if (kind.kind.empty() || !has_tensors(node)) {  // sizes, and what follows from numbers alone
      for (std::size_t k = 0; k < std::min(results.size(), node.outputs.size()); ++k) add(node.outputs[k], results[k]);
      return;
    }
    switch (kind.rule) {
      case OnnxRule::view:
        return view(node, kind, results);
      case OnnxRule::product:
        return product(node, results[0]);
      case OnnxRule::convolution:
        return convolution(node, results[0]);
      case OnnxRule::batch_norm:
      case OnnxRule::layer_norm:
        return norm(node, kind, results[0]);
      case OnnxRule::binary:
        return binary(node, kind, results[0]);
      case OnnxRule::lookup:
        return lookup(node, results[0]);
      case OnnxRule::concatenation:
        return concatenation(node, results[0]);
      case OnnxRule::max_pool:
      case OnnxRule::dropout:
        return marked(node, kind, results[0]);
      default:
        return unary(node, kind, results[0]);
    }
  }

  struct Made {
    std::string kind;
    Phase phase = Phase::forward;
    std::vector<TensorId> inputs, outputs;
    double flops = 0;
    bool is_view = false;
  };

  void op(Made made, const std::string& name) {
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

  static std::string label(const OnnxNode& node) { return node.name.empty() ? node.outputs[0] : node.name; }

  /// A new value with a storage of its own.
  Known& fresh(const OnnxNode& node, const OnnxValue& value, bool needs) {
    const TensorId t = tensor(node.outputs[0], TensorKind::activation, value.shape, value.dtype);
    Known& known = add(node.outputs[0], value);
    known.tensor = t;
    known.needs_gradient = needs;
    return known;
  }

  bool any_needs(const OnnxNode& node) const {
    return std::ranges::any_of(
        node.inputs, [&](const std::string& name) { return !name.empty() && values_.at(name).needs_gradient; });
  }

  void on_backward(std::uint32_t of, std::function<void(TensorId)> then) {
    backwards_.push_back([this, of, then = std::move(then)] {
      if (gradients_[of]) then(*gradients_[of]);
    });
  }

  TensorId gradient_like(const Known& of) {
    return tensor(fmt::format("gradient {}", made_.tensors.size()), TensorKind::gradient, of.shape, of.dtype);
  }

  void contribute(const Known& to, TensorId gradient, const std::string& name) {
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

  // --- layers

  static bool is_whole_view(std::string_view op) { return op != "Slice" && op != "Split"; }

  void view(const OnnxNode& node, const OnnxKind& kind, const std::vector<OnnxValue>& results) {
    const Known x = in(node, 0);
    if ((node.op == "Reshape" || node.op == "Flatten") && !keeps_places(x, results[0].shape))
      return copied(node, x, results[0]);
    std::vector<TensorId> outputs;
    for (std::size_t k = 0; k < std::min(results.size(), node.outputs.size()); ++k) {
      const TensorId t =
          tensor(node.outputs[k], TensorKind::activation, results[k].shape, x.dtype, made_[*x.tensor].storage);
      outputs.push_back(t);
      Known& known = add(node.outputs[k], results[k]);
      known.tensor = t;
      known.needs_gradient = x.needs_gradient;
      known.is_weight = x.is_weight;
      known.strides = strides_of(node, x, results[k].shape);
      if (is_whole_view(node.op)) known.gradient = x.gradient;
    }
    op({.kind = std::string(kind.kind), .inputs = {*x.tensor}, .outputs = outputs, .is_view = true}, label(node));
    if (is_whole_view(node.op) || !x.needs_gradient) return;
    backwards_.push_back([this, x, names = node.outputs, name = label(node)] {
      std::vector<TensorId> parts;
      for (const std::string& part : names) {
        if (const auto place = values_.find(part); place != values_.end() && gradients_[place->second.gradient]) {
          parts.push_back(*gradients_[place->second.gradient]);
        }
      }
      if (parts.empty()) return;
      const TensorId all = gradient_like(x);
      op({.kind = parts.size() > 1 ? "cat" : "slice_backward",
          .phase = Phase::backward,
          .inputs = parts,
          .outputs = {all}},
         name);
      contribute(x, all, name);
    });
  }

  static AtenShape strides_of(const OnnxNode& node, const Known& x, const AtenShape& shape) {
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
    if (node.op == "Slice" || node.op == "Split" || node.op == "Identity") return x.strides;
    return x.strides == dense_strides(x.shape) ? dense_strides(shape)
                                               : regrouped(x, shape).value_or(dense_strides(shape));
  }

  /// Strides that show a value in another shape without a copy; unset where there are none.
  static std::optional<AtenShape> regrouped(const Known& x, const AtenShape& shape) {
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

  static bool keeps_places(const Known& x, const AtenShape& shape) {
    return x.strides == dense_strides(x.shape) || regrouped(x, shape);
  }

  void copied(const OnnxNode& node, const Known& x, const OnnxValue& result) {
    Known& y = fresh(node, result, x.needs_gradient);
    y.gradient = x.gradient;
    op({.kind = "clone", .inputs = {*x.tensor}, .outputs = {*y.tensor}}, label(node));
  }

  void product(const OnnxNode& node, const OnnxValue& result) {
    Known a = in(node, 0), b = in(node, 1);
    const bool has_bias = node.op == "Gemm" && node.inputs.size() > 2 && !node.inputs[2].empty();
    if (!a.tensor || !b.tensor) refuse_onnx_node(file_, node, "a product with constants has no rule here");
    const bool is_batched = b.shape.size() > 2;
    if (is_batched) {
      a = merged(node, a);
      b = merged(node, b);
    }
    const Known y = fresh(node, result, any_needs(node));
    const double flops = 2.0 * static_cast<double>(element_count(a.shape)) * static_cast<double>(result.shape.back());
    std::vector<TensorId> inputs;
    std::optional<Known> bias;
    if (has_bias) bias = in(node, 2);
    if (bias && bias->tensor) inputs.push_back(*bias->tensor);
    inputs.insert(inputs.end(), {*a.tensor, *b.tensor});
    op({.kind = is_batched ? "bmm"
                : has_bias ? "addmm"
                           : "mm",
        .inputs = inputs,
        .outputs = {*y.tensor},
        .flops = flops},
       label(node));
    on_backward(y.gradient, [=, this, name = label(node)](TensorId gy) {
      const std::string kind = is_batched ? "bmm" : "mm";
      for (const auto& [of, other] : {std::pair(&a, &b), std::pair(&b, &a)}) {
        if (!of->needs_gradient) continue;
        const TensorId made = gradient_like(*of);
        op({.kind = kind, .phase = Phase::backward, .inputs = {gy, *other->tensor}, .outputs = {made}, .flops = flops},
           name);
        contribute(*of, made, name);
      }
      if (bias && bias->needs_gradient) summed(*bias, gy, name);
    });
  }

  /// Of a batch of matrices: as PyTorch gives it to the product, with its samples in one axis, which may need a copy.
  Known merged(const OnnxNode& node, const Known& x) {
    bool is_one = true;
    for (std::size_t k = 0; k + 3 < x.shape.size(); ++k)
      is_one = is_one && x.strides[k] == x.shape[k + 1] * x.strides[k + 1];
    if (is_one || x.shape.size() < 4) return x;
    Known y = x;
    y.tensor = tensor(fmt::format("{} in order", made_[*x.tensor].name), TensorKind::activation, x.shape, x.dtype);
    y.strides = dense_strides(x.shape);
    op({.kind = "clone", .inputs = {*x.tensor}, .outputs = {*y.tensor}}, label(node));
    return y;
  }

  /// The gradient of what was broadcast.
  void summed(const Known& to, TensorId gradient, const std::string& name) {
    const TensorId made = gradient_like(to);
    op({.kind = "sum", .phase = Phase::backward, .inputs = {gradient}, .outputs = {made}}, name);
    contribute(to, made, name);
  }

  void convolution(const OnnxNode& node, const OnnxValue& result) {
    const Known x = in(node, 0), w = in(node, 1);
    if (!x.tensor || !w.tensor) refuse_onnx_node(file_, node, "a convolution with constants has no rule here");
    std::optional<Known> bias;
    if (node.inputs.size() > 2 && !node.inputs[2].empty()) bias = in(node, 2);
    const Known y = fresh(node, result, any_needs(node));
    const double flops = 2.0 * static_cast<double>(element_count(result.shape)) *
                         static_cast<double>(element_count(w.shape) / std::max<std::int64_t>(1, w.shape[0]));
    std::vector<TensorId> inputs{*x.tensor, *w.tensor};
    if (bias && bias->tensor) inputs.push_back(*bias->tensor);
    op({.kind = "convolution", .inputs = inputs, .outputs = {*y.tensor}, .flops = flops}, label(node));
    on_backward(y.gradient, [=, this, name = label(node)](TensorId gy) {
      Made made{.kind = "convolution_backward", .phase = Phase::backward, .inputs = {gy, *x.tensor, *w.tensor}};
      std::vector<std::pair<Known, TensorId>> of;
      for (const Known& each : {x, w}) {
        if (!each.needs_gradient) continue;
        of.emplace_back(each, gradient_like(each));
        made.flops += flops;
      }
      if (bias && bias->needs_gradient) of.emplace_back(*bias, gradient_like(*bias));
      for (const auto& [known, gradient] : of) made.outputs.push_back(gradient);
      op(std::move(made), name);
      for (const auto& [known, gradient] : of) contribute(known, gradient, name);
    });
  }

  void norm(const OnnxNode& node, const OnnxKind& kind, const OnnxValue& result) {
    const Known x = in(node, 0);
    if (!x.tensor) refuse_onnx_node(file_, node, "a norm of constants has no rule here");
    std::vector<Known> weights;
    for (std::size_t k = 1; k < std::min<std::size_t>(3, node.inputs.size()); ++k) {
      if (!node.inputs[k].empty() && in(node, k).tensor) weights.push_back(in(node, k));
    }
    const Known y = fresh(node, result, any_needs(node));
    AtenShape rows = x.shape;
    if (kind.rule == OnnxRule::batch_norm) rows = {x.shape.size() > 1 ? x.shape[1] : 1};
    if (kind.rule == OnnxRule::layer_norm && !rows.empty()) rows.back() = 1;
    std::vector<TensorId> inputs{*x.tensor}, statistics;
    for (const Known& each : weights) inputs.push_back(*each.tensor);
    for (const char* what : {"mean", "deviation"}) {
      statistics.push_back(
          tensor(fmt::format("{} {}", node.outputs[0], what), TensorKind::activation, rows, onnx_float));
    }
    op({.kind = std::string(kind.kind), .inputs = inputs, .outputs = {*y.tensor, statistics[0], statistics[1]}},
       label(node));
    on_backward(y.gradient, [=, this, backward = std::string(kind.kind) + "_backward",
                             name = label(node)](TensorId gy) {
      Made made{.kind = backward, .phase = Phase::backward, .inputs = {gy, *x.tensor, statistics[0], statistics[1]}};
      for (const Known& each : weights) made.inputs.push_back(*each.tensor);
      std::vector<std::pair<Known, TensorId>> of;
      if (x.needs_gradient) of.emplace_back(x, gradient_like(x));
      for (const Known& each : weights) of.emplace_back(each, gradient_like(each));
      for (const auto& [known, gradient] : of) made.outputs.push_back(gradient);
      op(std::move(made), name);
      for (const auto& [known, gradient] : of) contribute(known, gradient, name);
    });
  }

  void binary(const OnnxNode& node, const OnnxKind& kind, const OnnxValue& result) {
    std::vector<Known> operands;
    for (std::size_t k = 0; k < node.inputs.size(); ++k) operands.push_back(in(node, k));
    const Known y = fresh(node, result, any_needs(node) && result.dtype != onnx_bool);
    std::vector<TensorId> inputs;
    for (const Known& each : operands) {
      if (each.tensor && std::ranges::find(inputs, *each.tensor) == inputs.end()) inputs.push_back(*each.tensor);
    }
    op({.kind = std::string(kind.kind), .inputs = inputs, .outputs = {*y.tensor}}, label(node));
    if (!y.needs_gradient) return;
    on_backward(y.gradient, [=, this, what = std::string(kind.kind), name = label(node)](TensorId gy) {
      for (std::size_t k = 0; k < operands.size(); ++k) {
        const Known& to = operands[k];
        if (!to.needs_gradient) continue;
        TensorId gradient = gy;
        const bool passes = what == "add" || what == "expand" || (what == "sub" && k == 0);
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
          gradient = tensor(fmt::format("gradient {}", made_.tensors.size()), TensorKind::gradient, y.shape, y.dtype);
          op({.kind = what == "sub" ? "neg" : what, .phase = Phase::backward, .inputs = reads, .outputs = {gradient}},
             name);
        }
        if (to.shape == y.shape) {
          contribute(to, gradient, name);
        } else {
          summed(to, gradient, name);
        }
      }
    });
  }

  void lookup(const OnnxNode& node, const OnnxValue& result) {
    const Known table = in(node, 0), rows = in(node, 1);
    if (!table.tensor) refuse_onnx_node(file_, node, "rows of constants have no rule here");
    if (!rows.tensor) {  // an index that is known: a view
      const TensorId t =
          tensor(node.outputs[0], TensorKind::activation, result.shape, table.dtype, made_[*table.tensor].storage);
      Known& y = add(node.outputs[0], result);
      y.tensor = t;
      y.needs_gradient = table.needs_gradient;
      const std::uint32_t gradient = y.gradient;
      op({.kind = "select", .inputs = {*table.tensor}, .outputs = {t}, .is_view = true}, label(node));
      on_backward(gradient, [=, this, name = label(node)](TensorId gy) {
        const TensorId all = gradient_like(table);
        op({.kind = "select_backward", .phase = Phase::backward, .inputs = {gy}, .outputs = {all}}, name);
        contribute(table, all, name);
      });
      return;
    }
    const Known y = fresh(node, result, table.needs_gradient);
    op({.kind = "embedding", .inputs = {*table.tensor, *rows.tensor}, .outputs = {*y.tensor}}, label(node));
    Op& made = made_.ops.back();  // of the table it reads the rows that it returns
    const std::int64_t unread = made_[*table.tensor].bytes.count - made_[*y.tensor].bytes.count;
    if (unread > 0) made.bytes_moved = Bytes{made.bytes_moved->count - unread};
    on_backward(y.gradient, [=, this, name = label(node)](TensorId gy) {
      const TensorId all = gradient_like(table);
      op({.kind = "embedding_dense_backward", .phase = Phase::backward, .inputs = {gy, *rows.tensor}, .outputs = {all}},
         name);
      contribute(table, all, name);
    });
  }

  void concatenation(const OnnxNode& node, const OnnxValue& result) {
    std::vector<Known> parts;
    std::vector<TensorId> inputs;
    for (std::size_t k = 0; k < node.inputs.size(); ++k) {
      parts.push_back(in(node, k));
      if (parts.back().tensor) inputs.push_back(*parts.back().tensor);
    }
    const Known y = fresh(node, result, any_needs(node));
    op({.kind = "cat", .inputs = inputs, .outputs = {*y.tensor}}, label(node));
    on_backward(y.gradient, [=, this, name = label(node)](TensorId gy) {
      for (const Known& part : parts) {
        if (!part.needs_gradient) continue;
        const TensorId made = gradient_like(part);
        op({.kind = "slice", .phase = Phase::backward, .inputs = {gy}, .outputs = {made}}, name);
        contribute(part, made, name);
      }
    });
  }

  /// With an output that the backward alone reads: a mask, places of maxima.
  void marked(const OnnxNode& node, const OnnxKind& kind, const OnnxValue& result) {
    const Known x = in(node, 0);
    if (!x.tensor) refuse_onnx_node(file_, node, "of constants it has no rule here");
    const bool is_pool = kind.rule == OnnxRule::max_pool;
    const Known y = fresh(node, result, x.needs_gradient);
    const TensorId marks =
        tensor(node.outputs[0] + " marks", TensorKind::activation, result.shape, is_pool ? onnx_integer : onnx_bool);
    op({.kind = std::string(kind.kind), .inputs = {*x.tensor}, .outputs = {*y.tensor, marks}}, label(node));
    on_backward(y.gradient,
                [=, this, backward = std::string(kind.kind) + "_backward", name = label(node)](TensorId gy) {
                  const TensorId made = gradient_like(x);
                  std::vector<TensorId> reads{gy, marks};
                  if (is_pool) reads.push_back(*x.tensor);
                  op({.kind = backward, .phase = Phase::backward, .inputs = reads, .outputs = {made}}, name);
                  contribute(x, made, name);
                });
  }

  void unary(const OnnxNode& node, const OnnxKind& kind, const OnnxValue& result) {
    const Known x = in(node, 0);
    if (!x.tensor) refuse_onnx_node(file_, node, "of constants it has no rule here");
    const Known y = fresh(node, result, x.needs_gradient);
    op({.kind = std::string(kind.kind), .inputs = {*x.tensor}, .outputs = {*y.tensor}}, label(node));
    on_backward(y.gradient,
                [=, this, what = std::string(kind.kind), rule = kind.rule, name = label(node)](TensorId gy) {
                  constexpr std::array<std::string_view, 7> by_result{"relu", "sigmoid",  "tanh",        "sqrt",
                                                                      "exp",  "_softmax", "_log_softmax"};
                  constexpr std::array<std::string_view, 2> by_nothing{"neg", "_to_copy"};
                  std::vector<TensorId> reads{gy};
                  if (std::ranges::find(by_result, what) != by_result.end()) {
                    reads.push_back(*y.tensor);
                  } else if (rule != OnnxRule::mean && std::ranges::find(by_nothing, what) == by_nothing.end()) {
                    reads.push_back(*x.tensor);
                  }
                  const TensorId made = gradient_like(x);
                  const std::string backward = what == "relu"           ? "threshold_backward"
                                               : rule == OnnxRule::mean ? "div"
                                                                        : what + "_backward";
                  op({.kind = backward, .phase = Phase::backward, .inputs = reads, .outputs = {made}}, name);
                  contribute(x, made, name);
                });
  }

  // --- the end

  /// Cross entropy of the first result, or that itself where it is one number.
  void loss() {
    if (model_.outputs.empty() || !values_.contains(model_.outputs[0])) refuse("output", "the model makes no result");
    const Known y = values_.at(model_.outputs[0]);
    if (!y.tensor || !y.needs_gradient) refuse(model_.outputs[0], "its result depends on no weight: nothing to train");
    const bool is_number = element_count(y.shape) == 1;
    if (is_number) {
      gradients_[y.gradient] = gradient_like(y);
      op({.kind = "ones_like", .phase = Phase::backward, .outputs = {*gradients_[y.gradient]}}, "gradient of the loss");
      return;
    }
    const AtenShape none, rows{y.shape.empty() ? 1 : element_count(y.shape) / y.shape.back()};
    const TensorId probabilities = tensor("log softmax", TensorKind::activation, y.shape, y.dtype);
    const TensorId targets = tensor("targets", TensorKind::input, rows, onnx_integer);
    const TensorId value = tensor("loss", TensorKind::activation, none, onnx_float),
                   weight = tensor("weight of the loss", TensorKind::activation, none, onnx_float);
    op({.kind = "_log_softmax", .inputs = {*y.tensor}, .outputs = {probabilities}}, "loss");
    op({.kind = "nll_loss_forward", .inputs = {probabilities, targets}, .outputs = {value, weight}}, "loss");
    const TensorId one = tensor("gradient of the loss", TensorKind::gradient, none, onnx_float);
    op({.kind = "ones_like", .phase = Phase::backward, .outputs = {one}}, "loss");
    const TensorId of_probabilities = gradient_like(y), of_result = gradient_like(y);
    op({.kind = "nll_loss_backward",
        .phase = Phase::backward,
        .inputs = {one, probabilities, targets, weight},
        .outputs = {of_probabilities}},
       "loss");
    op({.kind = "_log_softmax_backward_data",
        .phase = Phase::backward,
        .inputs = {of_probabilities, probabilities},
        .outputs = {of_result}},
       "loss");
    contribute(y, of_result, "loss");
  }

  void name_gradients() {
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

  void mark_saved() {
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

  void write_source() {
    auto& notes = made_.source.notes;
    notes.emplace_back("imported_from", "an ONNX model" + (model_.producer.empty() ? "" : " of " + model_.producer));
    notes.emplace_back("backward", "derived by rule, with what PyTorch's derivatives.yaml keeps; gelu is one op");
    notes.emplace_back("loss", "cross entropy of the first result, where that is more than a number");
    notes.emplace_back("flops", "2 per multiply-add of products and convolutions, all else 0");
    notes.emplace_back("bytes", "distinct tensors that an op reads and writes; views move nothing");
    if (left_out_bytes_ > 0) notes.emplace_back("buffers_left_out_bytes", std::to_string(left_out_bytes_));
    if (untrained_ > 0) notes.emplace_back("untrained", fmt::format("{} weights that no gradient reaches", untrained_));
    notes.emplace_back("left_out", "times and workspaces, which the model does not have");
  }

  const OnnxModel& model_;
  std::string file_;
  ImportNumbers& numbers_;
  Graph made_;
  double sum_ = 0;
  std::vector<Bytes> bytes_of_;  // by storage
  std::unordered_map<std::string, Known> values_;
  std::vector<std::optional<TensorId>> gradients_;
  std::vector<std::pair<std::uint32_t, TensorId>> owners_;  // which gradient is which parameter's
  std::vector<std::function<void()>> backwards_;            // in the order of the forward
  std::set<std::string> read_, statistics_;
  std::set<std::size_t> skipped_;
  std::unordered_map<std::size_t, std::string> gelu_;  // the last node of each: of what
  std::int64_t left_out_bytes_ = 0;
  std::size_t untrained_ = 0;
};

}  // namespace

Graph parse_onnx(const std::string& bytes, const std::string& file_name, ImportNumbers& numbers) {
  const OnnxModel model = parse_onnx_model(bytes, file_name);
  Graph graph = OnnxLowering(model, file_name, numbers).graph();
  JsonDocument document("{}", file_name);
  check_graph(document, graph);
  document.throw_if_any();
  return graph;
}

Graph read_onnx(const std::filesystem::path& path, ImportNumbers& numbers) {
  return parse_onnx(read_text_file(path), path.string(), numbers);
}

}  // namespace plimsoll
