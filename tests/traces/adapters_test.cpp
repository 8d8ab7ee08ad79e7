// Adapters on attention's projections of all formulas: what layers keep, what is trained, and what still runs.

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <variant>

#include "sim/ops/op_loop.h"
#include "tests/bad_input.h"
#include "tests/traces/formula_graphs.h"
#include "traces/trace_file.h"

using namespace plimsoll;

namespace {

const std::string of_words = ":width=64,heads=8,sequence=32,batch=2,vocabulary=96,lora=4,";

/// What a layer more keeps in bf16 and fp32.
struct Adapted {
  std::string model;
  const char* layers;  ///< the option
  std::int64_t bf16, fp32;
  std::int64_t statistics;  ///< means and roots of norms, which a CPU keeps in bf16: 2 bytes more each on a GPU
  std::size_t projections;  ///< with an adapter, of 2 layers
};

// By torch.autograd.graph.saved_tensors_hooks on peft's LoraConfig(r=4) of attention's projections, one layer and two
// of either stack, parameters left out (PyTorch 2.6 of Debian 13, transformers 5.15, on a CPU, 2026-11-29;
// traces/kept_by_models.py).
const std::string sound = "whisper" + of_words + "inner=160,source=24,positions=32,mels=16",
                  text = "t5" + of_words + "head_size=8,inner=160,source=24", gated = text + ",act=gated_gelu,tied=no";
const Adapted adapted[] = {
    {"gpt2" + of_words + "positions=32", "layers", 217'600, 381'952, 4 * 64, 4},
    {"bert" + of_words + "positions=32,inner=160", "layers", 141'824, 162'816, 4 * 64, 8},
    {"bert" + of_words + "positions=32,inner=160,variant=distilbert", "layers", 141'824, 162'816, 4 * 64, 8},
    {"vit:width=64,heads=8,inner=160,size=32,patch=8,batch=2,classes=10,lora=4", "layers", 75'344, 86'496, 4 * 34, 8},
    {"phi" + of_words + "inner=160,rotary=4", "layers", 194'816, 285'184, 2 * 64, 8},
    {sound + ",decoder=2", "layers", 106'368, 134'400, 4 * 48, 24},
    {sound + ",layers=2", "decoder", 241'920, 291'840, 6 * 64, 24},
    {text + ",decoder=2", "layers", 178'560, 157'056, 0, 24},
    {text + ",layers=2", "decoder", 442'624, 368'896, 0, 24},
    {gated + ",decoder=2", "layers", 255'360, 310'656, 0, 24},
    {gated + ",layers=2", "decoder", 545'024, 573'696, 0, 24}};

std::string with_layers(const Adapted& each, int layers, const std::string& dtype) {
  return each.model + "," + each.layers + "=" + std::to_string(layers) + ",dtype=" + dtype;
}

std::int64_t kept_by_a_layer(const Adapted& each, const std::string& dtype) {
  return kept_bytes(formula_graph_of(with_layers(each, 2, dtype))) -
         kept_bytes(formula_graph_of(with_layers(each, 1, dtype)));
}

}  // namespace

TEST_CASE("layers with adapters keep the bytes that PyTorch keeps", "[traces][adapters]") {
  for (const Adapted& each : adapted) {
    INFO(each.model << " " << each.layers);
    CHECK(kept_by_a_layer(each, "bf16") == each.bf16 + 2 * each.statistics);
    CHECK(kept_by_a_layer(each, "fp32") == each.fp32);
  }
}

// By the same hooks, of whole models of one layer in fp32. They count labels and what the loss makes, 516 bytes, and
// tables by which Phi turns; whoever called the model keeps the logits besides, 24,576 bytes.
TEST_CASE("a first layer with adapters keeps the bytes that PyTorch keeps", "[traces][adapters]") {
  constexpr std::int64_t logits = 24'576, labels = 516, tables = 1'024;
  const auto kept = [](const std::string& model) { return kept_bytes(formula_graph_of(model + ",dtype=fp32")); };
  CHECK(kept("gpt2" + of_words + "layers=1,positions=32") == 407'044 - labels + logits);
  CHECK(kept("bert" + of_words + "layers=1,positions=32,inner=160") == 221'188 - labels + logits);
  CHECK(kept("phi" + of_words + "layers=1,inner=160,rotary=4") == 147'460 - labels - tables + logits);
  CHECK(kept(sound + ",layers=1,decoder=1") == 463'620 - labels + logits);
  CHECK(kept(text + ",layers=1,decoder=1") == 563'332 - labels + logits);
  CHECK(kept(gated + ",layers=1,decoder=1") == 921'732 - labels + logits);
}

TEST_CASE("adapters alone are trained, and nothing runs that no adapter needs", "[traces][adapters]") {
  for (const Adapted& each : adapted) {
    for (const char* dtype : {"bf16", "fp32", "amp"}) {
      const std::string model = with_layers(each, 2, dtype);
      INFO(model);
      const Graph graph = formula_graph_of(model);
      std::set<TensorId> read;
      for (const Op& op : graph.ops) read.insert(op.inputs.begin(), op.inputs.end());
      std::size_t trained = 0;
      for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
        const Tensor& tensor = graph.tensors[t];
        if (tensor.kind == TensorKind::parameter_gradient) {
          ++trained;
          REQUIRE(tensor.gradient_of);
          CHECK(graph[*tensor.gradient_of].name.find(".adapter.") != std::string::npos);
          CHECK(graph[*tensor.gradient_of].dtype == "fp32");
        } else if (tensor.kind == TensorKind::gradient) {
          INFO(tensor.name);
          CHECK(read.contains(id_at<TensorId>(t)));
        }
      }
      CHECK(trained == 2 * each.projections);
      // The embedding, and what goes into the first layer's projections, have no gradient.
      const std::string first = model.starts_with("gpt2") ? "qkv" : "query";
      const std::string prefix = "layer0.attention." + first;
      CHECK(std::ranges::none_of(graph.ops, [&](const Op& op) {
        return is_backward(op.phase) && (op.name.starts_with("embedding") || op.name == prefix + " backward (input)" ||
                                         op.name == prefix + ".adapter.down backward (input)");
      }));
      CHECK(std::ranges::count(graph.ops, prefix + ".adapter.down backward (weight)", &Op::name) == 1);
    }
  }
}

TEST_CASE("ops of models with adapters have loops that their shapes agree with", "[traces][adapters]") {
  for (const Adapted& each : adapted) {
    for (const char* dtype : {"bf16", "amp"}) {
      const std::string model = with_layers(each, 2, dtype);
      const Graph graph = formula_graph_of(model);
      for (std::size_t o = 0; o < graph.ops.size(); ++o) {
        const std::variant<OpLoop, std::string> loop = loop_of(graph, id_at<OpId>(o));
        const std::string* why = std::get_if<std::string>(&loop);
        INFO(model << ": " << graph.ops[o].name << ": " << (why == nullptr ? "" : *why));
        CHECK(why == nullptr);
      }
      const Trace trace = load_trace(model);
      CHECK(parse_trace(trace_text(trace), "again") == trace);
    }
  }
}

TEST_CASE("adapters with logits that are kept to the end are refused", "[traces][adapters]") {
  for (const std::string model : {"gpt2", "bert", "opt", "phi", "whisper", "t5"}) {
    CHECK(complaint_of([&] { formula_graph_of(model + ":lora=4,logits=end"); }) ==
          model + ": lora: not with logits=end");
  }
  CHECK(complaint_of([] { formula_graph_of("gpt2:lora=0"); }).find("expected a whole number from 1") !=
        std::string::npos);
}
