// What `import onnx` makes of models that PyTorch 2.6 exported (tests/traces/foreign), held against the exporter's
// numbers of the same models.

#include "traces/imports/onnx/onnx_graph.h"

#include <catch2/catch.hpp>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "sim/io/text_file.h"
#include "tests/bad_input.h"
#include "traces/imports/onnx/onnx_patterns.h"
#include "traces/trace_file.h"

namespace plimsoll {
namespace {

const std::string cnn_file = "tests/traces/foreign/cnn.onnx";

Graph imported(const std::string& bytes, const std::vector<std::string>& given) {
  ImportNumbers numbers(given);
  Graph graph = parse_onnx(bytes, "net.onnx", numbers);
  numbers.refuse_unused();
  return graph;
}

double flops_of(const Graph& graph, Phase phase) {
  double sum = 0;
  for (const Op& op : graph.ops) sum += op.phase == phase ? op.flops->count : 0;
  return sum;
}

/// Of storages that the forward makes and the backward reads.
Bytes saved_bytes(const Graph& graph) {
  std::map<StorageId, bool> is_read;
  for (const Op& op : graph.ops) {
    if (op.phase == Phase::forward) {
      for (const TensorId t : op.outputs) {
        if (graph[t].kind == TensorKind::activation) is_read.emplace(graph[t].storage, false);
      }
    } else {
      for (const TensorId t : op.inputs) {
        if (const auto made = is_read.find(graph[t].storage); made != is_read.end()) made->second = true;
      }
    }
  }
  Bytes sum;
  std::set<StorageId> counted;  // those of parameters and inputs are not saved, though views of them are read
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.kind == TensorKind::parameter || tensor.kind == TensorKind::input) counted.insert(tensor.storage);
  }
  for (const Tensor& tensor : graph.tensors) {
    const auto made = is_read.find(tensor.storage);
    if (made != is_read.end() && made->second && counted.insert(tensor.storage).second) sum += tensor.bytes;
  }
  return sum;
}

// What traces/export_pytorch.py --graph says of the same model in PyTorch 2.6 (2026-11-29): 590,464 flops forward,
// 738,560 backward, 2,504 B of parameters, 98,660 B of values that the forward makes for the backward.
constexpr double forward_flops = 590'464;

TEST_CASE("an ONNX model has the flops, parameters and gradients that the exporter finds", "[onnx]") {
  const Graph graph = imported(read_text_file(cnn_file), {"batch=4"});
  CHECK(flops_of(graph, Phase::forward) == forward_flops);
  CHECK(flops_of(graph, Phase::backward) == 738'560);
  CHECK(bytes_of_kind(graph, TensorKind::parameter) == Bytes{2'504});
  CHECK(bytes_of_kind(graph, TensorKind::parameter_gradient) == Bytes{2'504});
  CHECK(saved_bytes(graph) == Bytes{98'660});
  CHECK(parse_trace(trace_text(Trace{graph}), "again") == Trace{graph});
}

// Likewise of a small transformer with eager attention, an embedding and a joined projection in three parts.
TEST_CASE("an ONNX model with attention has the flops and saved bytes that the exporter finds", "[onnx]") {
  const Graph graph = imported(read_text_file("tests/traces/foreign/attention.onnx"), {"batch=4"});
  CHECK(flops_of(graph, Phase::forward) == 1'908'736);
  CHECK(flops_of(graph, Phase::backward) == 3'817'472);
  CHECK(bytes_of_kind(graph, TensorKind::parameter) == Bytes{63'360});
  CHECK(bytes_of_kind(graph, TensorKind::parameter_gradient) == Bytes{63'360});
  CHECK(saved_bytes(graph) == Bytes{148'772});
}

// Likewise of `parts` (traces/onnx_models.py): a joined attention with repeated heads, an RMS norm, a gated layer,
// pictures padded and widened. The exporter ran on a CPU, whose dropout keeps its mask of 1,024 in floats.
TEST_CASE("an ONNX model with parts of today's networks has the exporter's flops and saved bytes", "[onnx]") {
  const Graph graph = imported(read_text_file("tests/traces/foreign/parts.onnx"), {"batch=4"});
  CHECK(flops_of(graph, Phase::forward) == 500'032);
  CHECK(flops_of(graph, Phase::backward) == 934'528);
  CHECK(bytes_of_kind(graph, TensorKind::parameter) == Bytes{12'760});
  CHECK(bytes_of_kind(graph, TensorKind::parameter_gradient) == Bytes{12'760});
  CHECK(saved_bytes(graph) == Bytes{105'572 - 3 * 1024});
  CHECK(parse_trace(trace_text(Trace{graph}), "again") == Trace{graph});
}

TEST_CASE("what ONNX writes for one op is one again, and attention written out stays so", "[onnx]") {
  const auto ops_of = [](const std::string& file) {
    OnnxModel model = parse_onnx_model(read_text_file("tests/traces/foreign/" + file), file);
    join_onnx_patterns(model);
    std::map<std::string, int> counts;
    for (const OnnxNode& node : model.nodes) ++counts[node.op];
    return counts;
  };
  auto eager = ops_of("attention.onnx"), parts = ops_of("parts.onnx");
  CHECK(std::tuple(eager["Gelu"], eager["Erf"], eager["linear"]) == std::tuple(1, 0, 4));
  CHECK(std::tuple(eager["Softmax"], eager["scaled_dot_product_attention"]) == std::tuple(1, 0));
  CHECK(std::tuple(parts["Softmax"], parts["scaled_dot_product_attention"]) == std::tuple(0, 1));
  CHECK(std::tuple(parts["silu"], parts["Sigmoid"], parts["linear"]) == std::tuple(1, 0, 2));
  CHECK(parts["rsqrt"] == 2);  // of the norm, and of the heads' width
}

TEST_CASE("an axis with a name takes the size that is given, and has none without", "[onnx]") {
  const std::string bytes = read_text_file(cnn_file);
  CHECK(flops_of(imported(bytes, {"batch=8"}), Phase::forward) == 2 * forward_flops);
  CHECK(complaint_of([&] { imported(bytes, {}); }) ==
        "net.onnx: x: its axis 'batch' has no size, expected --set batch=N");
  CHECK(complaint_of([&] {
          imported(bytes, {"batch=8", "sequence=2"});
        }) == "--set: sequence: the file has no such number, expected batch");
}

TEST_CASE("what is no ONNX model, or has an operator without a rule, is refused", "[onnx]") {
  const std::string bytes = read_text_file(cnn_file);
  CHECK(complaint_of([&] { imported(bytes.substr(0, 2000), {"batch=4"}); }).find("no protobuf from byte ") !=
        std::string::npos);
  CHECK(complaint_of([] {
          imported(
              "\x0a\x03"
              "abc",
              {});
        }) == "net.onnx: graph: a protobuf of another message, expected an ONNX model with nodes");
  std::string other = bytes;
  other.replace(other.find("Relu"), 4, "Rela");
  for (std::size_t at = other.find("Relu"); at != std::string::npos; at = other.find("Relu", at))
    other.replace(at, 4, "Rela");
  CHECK(complaint_of([&] { imported(other, {"batch=4"}); }).find(": no rule for this operator") != std::string::npos);
}

}  // namespace
}  // namespace plimsoll
