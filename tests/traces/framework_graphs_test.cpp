// Graphs of known models by rule, against what the exporter recorded of PyTorch and what PyTorch's hooks count.

#include "traces/imports/framework_graphs.h"

#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <set>

#include "sim/core/op_attribute.h"
#include "sim/io/input_error.h"
#include "traces/trace_file.h"

namespace plimsoll {
namespace {

/// Ops that launch something: the exporter also recorded the counting of batches.
std::vector<const Op*> kernels_of(const Graph& graph) {
  std::vector<const Op*> kernels;
  for (const Op& op : graph.ops) {
    if (!op.inputs.empty() || !op.outputs.empty()) kernels.push_back(&op);
  }
  return kernels;
}

std::vector<std::pair<TensorKind, std::int64_t>> sizes_of(const Graph& graph, const std::vector<TensorId>& tensors) {
  std::vector<std::pair<TensorKind, std::int64_t>> sizes;
  for (const TensorId t : tensors) sizes.emplace_back(graph[t].kind, graph[t].bytes.count);
  return sizes;
}

TEST_CASE("resnet18 by rule is what the exporter recorded of torchvision's", "[framework]") {
  const Graph recorded = std::get<Graph>(load_trace("resnet18_ops_b8_cpu").model);
  const Graph made = framework_graph("resnet18:batch=8");
  const std::vector<const Op*> theirs = kernels_of(recorded), ours = kernels_of(made);
  REQUIRE(ours.size() == theirs.size());
  std::map<std::uint32_t, std::uint32_t> storage;  // theirs to ours: the same tensors share one
  for (std::size_t o = 0; o < ours.size(); ++o) {
    INFO(theirs[o]->name);
    CHECK(ours[o]->kind == theirs[o]->kind);
    CHECK(ours[o]->phase == theirs[o]->phase);
    CHECK(ours[o]->flops == theirs[o]->flops);
    CHECK(ours[o]->bytes_moved == theirs[o]->bytes_moved);
    CHECK(sizes_of(made, ours[o]->inputs) == sizes_of(recorded, theirs[o]->inputs));
    REQUIRE(sizes_of(made, ours[o]->outputs) == sizes_of(recorded, theirs[o]->outputs));
    CHECK(ours[o]->saved.size() == theirs[o]->saved.size());
    CHECK(ours[o]->mutates.size() == theirs[o]->mutates.size());
    for (std::size_t t = 0; t < ours[o]->outputs.size(); ++t) {
      const std::uint32_t here = made[ours[o]->outputs[t]].storage.index;
      const auto place = storage.try_emplace(recorded[theirs[o]->outputs[t]].storage.index, here).first;
      CHECK(place->second == here);
    }
  }
}

/// MiB an image of the storages that backward ops of these kinds read; of all, without kinds.
double saved_mib(const Graph& graph, const std::set<std::string>& kinds, double batch,
                 const std::function<bool(const Tensor&)>& counts = {}) {
  std::map<std::uint32_t, Bytes> saved;
  for (const Op& op : graph.ops) {
    if (!is_backward(op.phase) || (!kinds.empty() && !kinds.contains(op.kind))) continue;
    for (const TensorId t : op.inputs) {
      const Tensor& tensor = graph[t];
      const bool is_value = tensor.kind == TensorKind::activation || tensor.kind == TensorKind::input;
      if (is_value && (!counts || counts(tensor))) saved[tensor.storage.index] = tensor.bytes;
    }
  }
  double sum = 0;
  for (const auto& [storage, bytes] : saved) sum += static_cast<double>(bytes.count);
  return sum / (1 << 20) / batch;
}

TEST_CASE("what residual networks keep is what PyTorch's hooks count", "[framework]") {
  struct Row {
    const char* name;
    double conv, bn, relu, index, all;
  };
  const auto row =
      GENERATE(Row{"resnet18", 6.99, 9.48, 8.81, 1.53, 21.16}, Row{"resnet34", 11.77, 14.26, 13.59, 1.53, 30.73},
               Row{"resnet50", 34.55, 42.40, 36.65, 1.53, 81.93}, Row{"resnet101", 54.07, 61.92, 56.18, 1.53, 120.98},
               Row{"resnet152", 78.19, 86.04, 80.30, 1.53, 169.22});
  const double batch = 64;
  const Graph graph = framework_graph(std::string(row.name) + ":batch=64");
  INFO(row.name);
  const auto large = [](const Tensor& tensor) { return tensor.shape.size() == 4; };
  CHECK(saved_mib(graph, {"convolution_backward"}, batch, large) == Approx(row.conv).margin(0.006));
  CHECK(saved_mib(graph, {"native_batch_norm_backward"}, batch, large) == Approx(row.bn).margin(0.006));
  CHECK(saved_mib(graph, {"threshold_backward"}, batch, large) == Approx(row.relu).margin(0.006));
  const auto index = [](const Tensor& tensor) { return tensor.dtype == "int64"; };
  CHECK(saved_mib(graph, {"max_pool2d_with_indices_backward"}, batch, index) == Approx(row.index).margin(0.006));
  CHECK(saved_mib(graph, {}, batch) == Approx(row.all).margin(0.03));  // with statistics, logits and loss
}

/// Bytes of all storages that backward ops of some stages read, those of parameters and of gradients left out.
std::int64_t saved_bytes(const Graph& graph, const std::function<bool(const Op&)>& counts) {
  std::map<std::uint32_t, std::int64_t> storages;
  for (const Op& op : graph.ops) {
    if (!is_backward(op.phase) || !counts(op)) continue;
    for (const TensorId t : op.inputs) {
      const TensorKind kind = graph[t].kind;
      if (kind == TensorKind::activation || kind == TensorKind::input) {
        storages[graph[t].storage.index] = graph[t].bytes.count;
      }
    }
  }
  std::int64_t sum = 0;
  for (const auto& [storage, bytes] : storages) sum += bytes;
  return sum;
}

// What traces/kept_under_autocast.py counts with hooks, and the ops that it sees dispatched (PyTorch 2.6 and
// torchvision 0.21 of Debian 13, on a CPU, 2026-11-28).
TEST_CASE("residual networks under autocast keep and launch what PyTorch does", "[framework]") {
  struct Row {
    const char* name;
    std::int64_t saved, convolutions, blocks;
  };
  const auto row = GENERATE(Row{"resnet18", 25'347'780, 20, 8}, Row{"resnet50", 58'377'924, 53, 16});
  INFO(row.name);
  const std::string reference = std::string(row.name) + ":batch=2,size=64,dtype=amp";
  const Graph graph = framework_graph(reference);
  CHECK(saved_bytes(graph, [](const Op&) { return true; }) == row.saved);
  std::map<std::string, std::int64_t> found;
  for (const Op& op : graph.ops) ++found[op.kind];
  const std::int64_t norms = row.convolutions, relus = row.convolutions - (row.name == std::string("resnet18") ? 3 : 4),
                     casts = 2 * row.convolutions + 7;  // weights both ways; images, bias, weight and logits
  CHECK(found == std::map<std::string, std::int64_t>{{"_log_softmax", 1},
                                                     {"_log_softmax_backward_data", 1},
                                                     {"_to_copy", casts},
                                                     {"add", row.blocks},
                                                     {"add_", row.blocks},
                                                     {"addmm", 1},
                                                     {"convolution", row.convolutions},
                                                     {"convolution_backward", row.convolutions},
                                                     {"div", 1},
                                                     {"max_pool2d_with_indices", 1},
                                                     {"max_pool2d_with_indices_backward", 1},
                                                     {"mean", 1},
                                                     {"mm", 2},
                                                     {"native_batch_norm", norms},
                                                     {"native_batch_norm_backward", norms},
                                                     {"nll_loss_backward", 1},
                                                     {"nll_loss_forward", 1},
                                                     {"ones_like", 1},
                                                     {"relu_", relus},
                                                     {"sum", 1},
                                                     {"threshold_backward", relus}});
  for (const Tensor& tensor : graph.tensors) {  // parameters and their gradients stay wide
    const bool is_wide = tensor.kind == TensorKind::parameter || tensor.kind == TensorKind::parameter_gradient;
    if (is_wide) CHECK(tensor.dtype == "float32");
  }
  CHECK(bytes_of_kind(graph, TensorKind::parameter) ==
        bytes_of_kind(framework_graph(std::string(row.name) + ":batch=2,size=64"), TensorKind::parameter));
}

TEST_CASE("pictures lie as the reference says, and only convolutions tell", "[framework]") {
  const Graph last = framework_graph("resnet18:batch=2,size=64,dtype=amp,layout=channels_last"),
              first = framework_graph("resnet18:batch=2,size=64,dtype=amp");
  REQUIRE(last.ops.size() == first.ops.size());
  for (std::size_t o = 0; o < last.ops.size(); ++o) {
    const bool tells = last.ops[o].kind.starts_with("convolution");
    CHECK(first.ops[o].attributes.empty());
    CHECK((attribute_of(last.ops[o], "memory_format") == std::optional<std::string_view>("channels_last")) == tells);
  }
  CHECK_THROWS_WITH(framework_graph("deit_s:dtype=amp"), "deit_s:dtype=amp: dtype: amp is for resnet18 to resnet152");
  CHECK_THROWS_WITH(framework_graph("resmlp_s12:layout=channels_last"),
                    "resmlp_s12:layout=channels_last: layout: channels_last is for resnet18 to resnet152");
}

// What `traces/test_export_pytorch.py Kept` counts with hooks on PyTorch 1.13, which also keeps what the last mean
// reads (batch x 196 x 384 numbers), for its shape alone; later versions do not.
TEST_CASE("perceptrons on patches keep what PyTorch's hooks count, to the byte", "[framework]") {
  struct Row {
    const char* name;
    std::int64_t batch, layers, size, saved, parameters;
  };
  const auto row = GENERATE(
      Row{"resmlp_s12", 1, 12, 224, 51'787'172, 15'350'872}, Row{"resmlp_s12", 2, 12, 224, 103'574'340, 15'350'872},
      Row{"resmlp_s24", 2, 24, 224, 204'729'156, 30'020'680}, Row{"resmlp_s36", 1, 36, 224, 152'941'988, 44'690'488},
      Row{"resmlp_s12", 2, 12, 96, 19'032'900, 14'903'512});
  INFO(row.name << ", " << row.batch << ", " << row.size);
  const Graph graph = framework_graph(std::string(row.name) + ":batch=" + std::to_string(row.batch) +
                                      ",size=" + std::to_string(row.size));
  const std::int64_t patches = row.size / 16 * (row.size / 16), width = 384;
  const std::int64_t of_mean = row.batch * patches * width * 4;
  CHECK(saved_bytes(graph, [](const Op&) { return true; }) == row.saved - of_mean);
  for (std::uint32_t block = 1; block <= row.layers; ++block) {  // inputs of norms, layers and factors: 14 C a patch
    const std::int64_t own = saved_bytes(graph, [&](const Op& op) { return op.stage == block; });
    CHECK(own == row.batch * patches * 14 * width * 4);
  }
  CHECK(bytes_of_kind(graph, TensorKind::parameter).count == 4 * row.parameters);
  std::set<TensorId> scaled, read;  // by factors of channels: read by the products that sum to the factors' gradients
  for (const Op& op : graph.ops) {
    if (op.kind == "mul") (is_backward(op.phase) ? read : scaled).insert(op.inputs[1]);
  }
  for (const TensorId t : scaled) CHECK(read.contains(t));
  CHECK(scaled.size() == static_cast<std::size_t>(4 * row.layers + 1));
}

TEST_CASE("a layer of a vision transformer keeps 16 C + h N numbers a token", "[framework]") {
  struct Row {
    const char* name;
    std::int64_t width, heads;
  };
  const auto row = GENERATE(Row{"deit_ti", 192, 3}, Row{"deit_s", 384, 6}, Row{"deit_b", 768, 12});
  INFO(row.name);
  const std::int64_t batch = 4, tokens = 197;
  const Graph graph = framework_graph(std::string(row.name) + ":batch=4");
  const auto saved = [&](std::uint32_t stage) {
    std::map<std::uint32_t, std::int64_t> storages;
    for (const Op& op : graph.ops) {
      if (!is_backward(op.phase) || op.stage != stage) continue;
      for (const TensorId t : op.inputs) {
        const bool statistics = graph[t].shape.size() == 3 && graph[t].shape.back() == 1;
        if (graph[t].kind == TensorKind::activation && !statistics)
          storages[graph[t].storage.index] = graph[t].bytes.count;
      }
    }
    std::int64_t sum = 0;
    for (const auto& [storage, bytes] : storages) sum += bytes;
    return sum;
  };
  for (std::uint32_t block = 1; block <= 12; ++block) {
    CHECK(saved(block) == 4 * batch * tokens * (16 * row.width + row.heads * tokens));
  }
}

TEST_CASE("vision transformers keep what PyTorch's hooks count, to the byte", "[framework]") {
  struct Row {
    const char* name;
    std::int64_t saved, parameters;
  };
  const auto row = GENERATE(Row{"deit_ti", 71'170'964, 5'717'416}, Row{"deit_s", 141'050'804, 22'050'664},
                            Row{"deit_b", 280'810'484, 86'567'656});
  INFO(row.name);
  const Graph graph = framework_graph(std::string(row.name) + ":batch=2");
  const std::int64_t factors =
      12 * 8;  // what scores are multiplied by, a number of each layer, which graphs do not have
  CHECK(saved_bytes(graph, [](const Op&) { return true; }) == row.saved - factors);
  CHECK(bytes_of_kind(graph, TensorKind::parameter).count == 4 * row.parameters);
}

TEST_CASE("a network in tf32 is the one in fp32 whose products have another peak", "[traces][framework]") {
  Graph made = framework_graph("resnet18:batch=2,dtype=tf32");
  CHECK(made.source.dtype == "tf32");
  made.source.dtype = "fp32";
  made.name = "resnet18:batch=2";
  CHECK(made == framework_graph("resnet18:batch=2"));
}

TEST_CASE("references of known models are read like others", "[framework]") {
  CHECK(is_framework_graph("resnet50"));
  CHECK_FALSE(is_framework_graph("resnet:blocks=2"));
  CHECK(framework_graph("deit_s:batch=2,size=384").tensors[0].shape == std::vector<std::int64_t>{2, 3, 384, 384});
  CHECK_THROWS_AS(framework_graph("resnet50:batch=0"), InputError);
  CHECK_THROWS_WITH(framework_graph("resnet50:size=100"), Catch::Contains("must be a multiple of 32, found 100"));
  CHECK_THROWS_AS(framework_graph("resnet50:bach=1"), InputError);
}

}  // namespace
}  // namespace plimsoll
