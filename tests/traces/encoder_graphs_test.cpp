// BERT and ViT by formula: their published parameters, what a layer keeps, and the ops that PyTorch launches.

#include "traces/models/encoder_graphs.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <variant>

#include "sim/ops/op_loop.h"
#include "tests/bad_input.h"
#include "tests/traces/formula_graphs.h"
#include "traces/trace_file.h"

using namespace plimsoll;

namespace {

const std::string small_bert =
                      "bert:layers=2,width=64,heads=8,inner=160,sequence=32,batch=2,vocabulary=96,positions=32,dtype=",
                  small_vit = "vit:layers=2,width=64,heads=8,inner=160,size=32,patch=8,batch=2,classes=10,dtype=",
                  large = "layers=24,width=1024,heads=16";

/// Ops whose names begin so.
std::ptrdiff_t ops_of(const Graph& graph, Phase phase, const std::string& name) {
  return std::ranges::count_if(graph.ops, [&](const Op& op) { return op.phase == phase && op.name.starts_with(name); });
}

}  // namespace

// Numbers of parameters of Hugging Face's classes (transformers 5.15; traces/kept_by_models.py).
TEST_CASE("encoders by formula have the parameters that are published", "[traces][encoders]") {
  CHECK(parameter_bytes(formula_graph_of("bert:sequence=8")) == 2LL * 109'514'298);
  CHECK(parameter_bytes(formula_graph_of("bert:sequence=8,dtype=fp32,head=classes," + large)) == 4LL * 335'143'938);
  CHECK(parameter_bytes(formula_graph_of("vit")) == 2LL * 86'567'656);
  CHECK(parameter_bytes(formula_graph_of("vit:dtype=amp," + large)) == 4LL * 304'326'632);
}

// By torch.autograd.graph.saved_tensors_hooks, one layer and two, parameters left out (PyTorch 2.6 of Debian 13,
// transformers 5.15, on a CPU, 2026-11-28; traces/kept_by_models.py). A CPU's norms keep means and roots in bf16, a
// GPU's in fp32: two of each more, of 2 bytes a position.
TEST_CASE("a layer of an encoder keeps the bytes that PyTorch keeps", "[traces][encoders]") {
  CHECK(kept_bytes(formula_graph_of(small_bert + "fp32"), "layer1.") == 216'064);
  CHECK(kept_bytes(formula_graph_of(small_bert + "tf32"), "layer1.") == 216'064);
  CHECK(kept_bytes(formula_graph_of(small_bert + "bf16"), "layer1.") == 109'056 + 4 * 64 * 2);
  CHECK(kept_bytes(formula_graph_of(small_vit + "fp32"), "layer1.") == 114'784);
  CHECK(kept_bytes(formula_graph_of(small_vit + "bf16"), "layer1.") == 57'936 + 4 * 34 * 2);
}

// Dispatched operations that are no views, of a model of one layer against those of two (PyTorch 2.6,
// transformers 5.15).
TEST_CASE("a layer of an encoder launches the ops that PyTorch launches", "[traces][encoders]") {
  for (const std::string& model : {small_bert + "bf16", small_vit + "bf16"}) {
    const Graph graph = formula_graph_of(model);
    CHECK(ops_of(graph, Phase::forward, "layer1.") == 12);
    CHECK(ops_of(graph, Phase::backward, "layer1.") == 26);
  }
}

// The same of the parts beside the layers. A norm's backward of parameters and input, and the loss's, are one each.
TEST_CASE("the parts beside an encoder's layers launch the ops that PyTorch launches", "[traces][encoders]") {
  const Graph words = formula_graph_of(small_bert + "bf16"),
              classes = formula_graph_of(small_bert + "bf16,head=classes"),
              images = formula_graph_of(small_vit + "bf16");
  CHECK(ops_of(words, Phase::forward, "embedding") == 6);
  CHECK(ops_of(words, Phase::backward, "embedding") == 5);
  CHECK(ops_of(words, Phase::forward, "head") == 4);
  CHECK(ops_of(words, Phase::backward, "head") == 8);
  CHECK(ops_of(classes, Phase::forward, "head") == 3);
  CHECK(ops_of(classes, Phase::backward, "head") == 9);
  CHECK(ops_of(images, Phase::forward, "embedding") == 3);
  CHECK(ops_of(images, Phase::backward, "embedding") == 3);
  CHECK(ops_of(images, Phase::forward, "head") == 2);
  CHECK(ops_of(images, Phase::backward, "head") == 6);
}

TEST_CASE("the loss of an encoder is computed in the type of its logits, under autocast in fp32",
          "[traces][encoders]") {
  const auto logs_of = [](const std::string& model) {
    const Graph graph = formula_graph_of(model);
    return std::ranges::find(graph.tensors, "log-probabilities", &Tensor::name)->dtype;
  };
  CHECK(logs_of(small_bert + "bf16") == "bf16");
  CHECK(logs_of(small_bert + "amp") == "fp32");
  CHECK(logs_of(small_vit + "fp16") == "fp16");
  CHECK(logs_of(small_vit + "amp") == "fp32");
}

TEST_CASE("every op of an encoder has a loop that its shapes agree with", "[traces][encoders]") {
  for (const std::string& model : {small_bert, small_vit}) {
    for (const char* dtype : {"amp", "bf16", "fp16", "fp32", "tf32", "amp,head=classes,logits=end"}) {
      const std::string reference = model + dtype;
      if (model == small_vit && reference.find("head") != std::string::npos) continue;
      const Graph graph = formula_graph_of(reference);
      for (std::size_t o = 0; o < graph.ops.size(); ++o) {
        const std::variant<OpLoop, std::string> loop = loop_of(graph, id_at<OpId>(o));
        const std::string* why = std::get_if<std::string>(&loop);
        INFO(reference << ": " << graph.ops[o].name << ": " << (why == nullptr ? "" : *why));
        CHECK(why == nullptr);
      }
      const Trace trace = load_trace(reference);
      CHECK(parse_trace(trace_text(trace), "again") == trace);
    }
  }
}

TEST_CASE("wrong sizes of encoders are refused", "[traces][encoders]") {
  CHECK(complaint_of([] { formula_graph_of("bert:heads=7"); }) == "bert: heads: must divide width 768, found 7");
  CHECK(complaint_of([] { formula_graph_of("bert:sequence=1024"); }) ==
        "bert: sequence: at most positions 512, found 1024");
  CHECK(complaint_of([] { formula_graph_of("vit:patch=15"); }) == "vit: patch: must divide size 224, found 15");
  CHECK(complaint_of([] { formula_graph_of("vit:heads=7"); }) == "vit: heads: must divide width 768, found 7");
  CHECK(complaint_of([] { formula_graph_of("bert:head=word"); }) ==
        "bert:head=word: head: expected words or classes, found 'word'");
}
