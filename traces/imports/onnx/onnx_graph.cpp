// From an ONNX model, which has a forward only, to an iteration: ops have the names of PyTorch's dispatcher and work by
// the exporter's rules. A loss is added: the cross entropy of the first result.

#include "traces/imports/onnx/onnx_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "sim/io/input_error.h"
#include "sim/io/json/json_cursor.h"
#include "sim/io/text_file.h"
#include "traces/imports/onnx/onnx_layers.h"
#include "traces/imports/onnx/onnx_patterns.h"
#include "traces/trace_parts.h"

namespace plimsoll {
namespace {

class OnnxLowering {
 public:
  OnnxLowering(const OnnxModel& model, const std::string& file, ImportNumbers& numbers)
      : model_(model), file_(file), numbers_(numbers), tape_(file) {}

  Graph graph() && {
    find_needed();
    for (const OnnxTensor& weight : model_.weights) add_weight(weight);
    for (const OnnxInput& input : model_.inputs) add_input(input);
    for (const OnnxNode& each : model_.nodes) lower(each);
    loss();
    tape_.run_backward();
    Graph made = std::move(tape_).finished(std::filesystem::path(file_).stem().string());
    write_source(made.source);
    return made;
  }

 private:
  void find_needed() {
    for (const OnnxNode& node : model_.nodes) {
      for (const std::string& name : node.inputs) read_.insert(name);
      for (std::size_t k = onnx_settings_from(node.op); k < node.inputs.size(); ++k) settings_.insert(node.inputs[k]);
    }
    for (const std::string& name : model_.outputs) read_.insert(name);
  }

  void add_weight(const OnnxTensor& weight) {
    if (!read_.contains(weight.name)) return;
    if (!weight.numbers && !settings_.contains(weight.name)) return tape_.add_parameter(weight);
    const AtenShape shape = tape_.checked(weight.name, weight.dims);
    tape_.add(weight.name, {shape, weight.dtype, weight.numbers, weight.scalar});
    if (!weight.numbers && !weight.scalar)
      left_out_bytes_ += element_count(shape) * tape_.element_size(weight.dtype, weight.name);
  }

  void add_input(const OnnxInput& input) {
    if (tape_.find(input.name) != nullptr || !read_.contains(input.name)) return;  // a weight that may be replaced
    AtenShape shape;
    for (const OnnxExtent& extent : input.shape) shape.push_back(extent_of(input, extent));
    tape_.add_input(input, tape_.checked(input.name, shape));
  }

  std::int64_t extent_of(const OnnxInput& input, const OnnxExtent& extent) {
    if (!extent.symbol.empty()) {
      if (const auto given = numbers_.asked(extent.symbol)) return *given;
      tape_.refuse(input.name,
                   fmt::format("its axis '{}' has no size, expected --set {}=N", extent.symbol, extent.symbol));
    }
    if (!extent.value || *extent.value < 0)
      tape_.refuse(input.name, "an axis without size or name; export the model with one");
    return *extent.value;
  }

  void lower(const OnnxNode& node) {
    const OnnxKind* const kind = node.domain.empty() || node.domain == "ai.onnx" ? onnx_kind(node.op) : nullptr;
    if (kind == nullptr) {
      tape_.refuse(
          node, node.domain.empty() ? "no rule for this operator" : "no rule for operators of domain " + node.domain);
    }
    std::vector<const OnnxValue*> inputs;
    for (const std::string& name : node.inputs) {
      const TapeValue* const value = tape_.find(name);
      if (!name.empty() && value == nullptr) tape_.refuse(node, fmt::format("no such value: '{}'", name));
      inputs.push_back(name.empty() ? nullptr : value);
    }
    if (node.outputs.empty()) tape_.refuse(node, "without a result");
    const std::vector<OnnxValue> results = onnx_results(node, inputs, file_);
    if (!kind->kind.empty() && tape_.has_tensors(node)) return lower_onnx_node(tape_, node, *kind, results);
    // sizes, and what follows from numbers alone
    for (std::size_t k = 0; k < std::min(results.size(), node.outputs.size()); ++k)
      tape_.add(node.outputs[k], results[k]);
  }

  /// Cross entropy of the first result, or that itself where it is one number.
  void loss() {
    if (model_.outputs.empty() || tape_.find(model_.outputs[0]) == nullptr)
      tape_.refuse("output", "the model makes no result");
    const TapeValue y = *tape_.find(model_.outputs[0]);
    if (!y.tensor || !y.needs_gradient)
      tape_.refuse(model_.outputs[0], "its result depends on no weight: nothing to train");
    const bool is_number = element_count(y.shape) == 1;
    if (is_number) {
      const TensorId one = tape_.gradient_like(y);
      tape_.op({.kind = "ones_like", .phase = Phase::backward, .outputs = {one}}, "gradient of the loss");
      tape_.contribute(y, one, "gradient of the loss");
      return;
    }
    const AtenShape none, rows{y.shape.empty() ? 1 : element_count(y.shape) / y.shape.back()};
    const TensorId probabilities = tape_.tensor("log softmax", TensorKind::activation, y.shape, y.dtype);
    const TensorId targets = tape_.tensor("targets", TensorKind::input, rows, onnx_integer);
    const TensorId value = tape_.tensor("loss", TensorKind::activation, none, onnx_float),
                   weight = tape_.tensor("weight of the loss", TensorKind::activation, none, onnx_float);
    tape_.op({.kind = "_log_softmax", .inputs = {*y.tensor}, .outputs = {probabilities}}, "loss");
    tape_.op({.kind = "nll_loss_forward", .inputs = {probabilities, targets}, .outputs = {value, weight}}, "loss");
    const TensorId one = tape_.tensor("gradient of the loss", TensorKind::gradient, none, onnx_float);
    tape_.op({.kind = "ones_like", .phase = Phase::backward, .outputs = {one}}, "loss");
    const TensorId of_probabilities = tape_.gradient_like(y), of_result = tape_.gradient_like(y);
    tape_.op({.kind = "nll_loss_backward",
              .phase = Phase::backward,
              .inputs = {one, probabilities, targets, weight},
              .outputs = {of_probabilities}},
             "loss");
    tape_.op({.kind = "_log_softmax_backward_data",
              .phase = Phase::backward,
              .inputs = {of_probabilities, probabilities},
              .outputs = {of_result}},
             "loss");
    tape_.contribute(y, of_result, "loss");
  }

  void write_source(Source& source) const {
    auto& notes = source.notes;
    notes.emplace_back("imported_from", "an ONNX model" + (model_.producer.empty() ? "" : " of " + model_.producer));
    notes.emplace_back("backward", "derived by rule, with what PyTorch's derivatives.yaml keeps; gelu is one op");
    notes.emplace_back("loss", "cross entropy of the first result, where that is more than a number");
    notes.emplace_back("flops", "2 per multiply-add of products and convolutions, all else 0");
    notes.emplace_back("bytes", "distinct tensors that an op reads and writes; views move nothing");
    if (left_out_bytes_ > 0) notes.emplace_back("buffers_left_out_bytes", std::to_string(left_out_bytes_));
    if (tape_.untrained() > 0)
      notes.emplace_back("untrained", fmt::format("{} weights that no gradient reaches", tape_.untrained()));
    notes.emplace_back("left_out", "times and workspaces, which the model does not have");
  }

  const OnnxModel& model_;
  const std::string& file_;
  ImportNumbers& numbers_;
  OnnxTape tape_;
  std::set<std::string> read_, settings_;
  std::int64_t left_out_bytes_ = 0;
};

}  // namespace

Graph parse_onnx(const std::string& bytes, const std::string& file_name, ImportNumbers& numbers) {
  OnnxModel model = parse_onnx_model(bytes, file_name);
  join_onnx_patterns(model);
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
