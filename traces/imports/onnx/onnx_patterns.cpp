#include "traces/imports/onnx/onnx_patterns.h"

#include <algorithm>
#include <optional>
#include <set>
#include <unordered_map>

namespace plimsoll {
namespace {

class PatternSearch {
 public:
  explicit PatternSearch(OnnxModel& model) : model_(model) {
    for (std::size_t n = 0; n < model.nodes.size(); ++n) {
      for (const std::string& name : model.nodes[n].inputs) readers_[name].push_back(n);
      for (const std::string& name : model.nodes[n].outputs) makers_[name] = n;
    }
    for (const OnnxTensor& weight : model.weights) ranks_.emplace(weight.name, weight.dims.size());
    results_.insert(model.outputs.begin(), model.outputs.end());
  }

  void join() {
    for (std::size_t n = 0; n < model_.nodes.size(); ++n) {
      if (model_.nodes[n].op == "Erf") join_gelu(n);
      if (model_.nodes[n].op == "Softmax") join_attention(n);
      if (model_.nodes[n].op == "Sigmoid") join_silu(n);
      if (model_.nodes[n].op == "Sqrt") join_rsqrt(n);
      if (model_.nodes[n].op == "MatMul") join_linear(n);
    }
    std::size_t kept = 0;
    for (std::size_t n = 0; n < model_.nodes.size(); ++n) {
      if (gone_.contains(n)) continue;
      if (kept != n) model_.nodes[kept] = std::move(model_.nodes[n]);
      ++kept;
    }
    model_.nodes.resize(kept);
  }

 private:
  using Place = std::optional<std::size_t>;

  Place maker(const std::string& name, std::string_view op) const {
    const auto place = makers_.find(name);
    return place != makers_.end() && model_.nodes[place->second].op == op ? Place(place->second) : std::nullopt;
  }

  /// The only reader of the only result of a node, if it is `op`.
  Place only_reader(Place n, std::string_view op) const {
    if (!n || model_.nodes[*n].outputs.size() != 1 || results_.contains(model_.nodes[*n].outputs[0])) return {};
    const auto place = readers_.find(model_.nodes[*n].outputs[0]);
    if (place == readers_.end() || place->second.size() != 1) return {};
    return model_.nodes[place->second[0]].op == op ? Place(place->second[0]) : std::nullopt;
  }

  const std::string& other_input(std::size_t n, const std::string& name) const {
    const auto& inputs = model_.nodes[n].inputs;
    return inputs[0] == name ? inputs[1] : inputs[0];
  }

  /// x / sqrt(2), its error function, 1 more, times x, half of it.
  void join_gelu(std::size_t erf) {
    if (model_.nodes[erf].inputs.size() != 1) return;
    const Place divided = maker(model_.nodes[erf].inputs[0], "Div"), added = only_reader(erf, "Add");
    const Place times = only_reader(added, "Mul"), halved = only_reader(times, "Mul");
    if (!divided || !halved || model_.nodes[*divided].inputs.empty()) return;
    const std::string x = model_.nodes[*divided].inputs[0];
    if (std::ranges::count(model_.nodes[*times].inputs, x) != 1) return;
    gone_.insert({*divided, erf, *added, *times});
    model_.nodes[*halved].op = "Gelu";
    model_.nodes[*halved].inputs = {x};
  }

  /// x times its sigmoid.
  void join_silu(std::size_t sigmoid) {
    const Place times = only_reader(sigmoid, "Mul");
    if (!times || model_.nodes[sigmoid].inputs.size() != 1) return;
    const std::string x = model_.nodes[sigmoid].inputs[0];
    if (std::ranges::count(model_.nodes[*times].inputs, x) != 1) return;
    gone_.insert(sigmoid);
    model_.nodes[*times].op = "silu";
    model_.nodes[*times].inputs = {x};
  }

  /// A number divided by a square root, or its reciprocal.
  void join_rsqrt(std::size_t root) {
    if (model_.nodes[root].inputs.size() != 1) return;
    Place divided = only_reader(root, "Div");
    if (divided && (model_.nodes[*divided].inputs.size() != 2 || !maker(model_.nodes[*divided].inputs[0], "Constant") ||
                    model_.nodes[*divided].inputs[0] == model_.nodes[root].outputs[0]))
      return;
    if (!divided) divided = only_reader(root, "Reciprocal");
    if (!divided) return;
    gone_.insert(root);
    model_.nodes[*divided].op = "rsqrt";
    model_.nodes[*divided].inputs = model_.nodes[root].inputs;
  }

  /// A product with a matrix, and a vector added to its rows.
  void join_linear(std::size_t product) {
    const Place added = only_reader(product, "Add");
    if (!added || model_.nodes[product].inputs.size() != 2 || model_.nodes[*added].inputs.size() != 2) return;
    const std::string bias = other_input(*added, model_.nodes[product].outputs[0]);
    std::string matrix = model_.nodes[product].inputs[1];
    if (const Place turned = maker(matrix, "Transpose")) matrix = model_.nodes[*turned].inputs[0];
    if (rank_of_weight(matrix) != 2 || rank_of_weight(bias) != 1) return;
    gone_.insert(product);
    model_.nodes[*added].op = "linear";
    model_.nodes[*added].inputs = {model_.nodes[product].inputs[0], model_.nodes[product].inputs[1], bias};
  }

  std::optional<std::size_t> rank_of_weight(const std::string& name) const {
    const auto place = ranks_.find(name);
    return place == ranks_.end() ? std::nullopt : std::optional(place->second);
  }

  /// What is multiplied by a square root: PyTorch's exporter gives each side of the scores half of the scale, which
  /// attention written out does not.
  std::optional<std::string> scaled(const std::string& name, Place& by) const {
    by = maker(name, "Mul");
    if (!by || model_.nodes[*by].inputs.size() != 2 || !only_reader(by, "MatMul")) return {};
    for (const std::string& factor : model_.nodes[*by].inputs) {
      std::string root = factor;
      while (const Place cast = maker(root, "Cast")) root = model_.nodes[*cast].inputs[0];
      if (maker(root, "Sqrt")) return other_input(*by, factor);
    }
    return {};
  }

  void join_attention(std::size_t softmax) {
    const Place mixed = only_reader(softmax, "MatMul");
    if (!mixed || model_.nodes[softmax].inputs.size() != 1 || model_.nodes[*mixed].inputs.size() != 2) return;
    if (model_.nodes[*mixed].inputs[0] != model_.nodes[softmax].outputs[0]) return;
    std::string scores = model_.nodes[softmax].inputs[0], mask;
    const Place masked = maker(scores, "Add");
    if (masked) {
      if (model_.nodes[*masked].inputs.size() != 2 || !only_reader(masked, "Softmax")) return;
      scores = model_.nodes[*masked].inputs[0];
      mask = model_.nodes[*masked].inputs[1];
    }
    const Place product = maker(scores, "MatMul");
    if (!product || model_.nodes[*product].inputs.size() != 2) return;
    if (!only_reader(product, masked ? "Add" : "Softmax")) return;
    Place by_query, by_key;
    const auto query = scaled(model_.nodes[*product].inputs[0], by_query);
    const auto key = scaled(model_.nodes[*product].inputs[1], by_key);
    if (!query || !key) return;
    gone_.insert({*by_query, *by_key, *product, softmax});
    OnnxNode& all = model_.nodes[*mixed];
    all.op = "scaled_dot_product_attention";
    all.inputs = {*query, *key, all.inputs[1]};
    if (masked) {
      gone_.insert(*masked);
      all.inputs.push_back(mask);
    }
  }

  OnnxModel& model_;
  std::unordered_map<std::string, std::vector<std::size_t>> readers_;
  std::unordered_map<std::string, std::size_t> makers_;
  std::unordered_map<std::string, std::size_t> ranks_;  // of weights
  std::set<std::string> results_;
  std::set<std::size_t> gone_;
};

}  // namespace

void join_onnx_patterns(OnnxModel& model) {
  PatternSearch(model).join();
}

}  // namespace plimsoll
