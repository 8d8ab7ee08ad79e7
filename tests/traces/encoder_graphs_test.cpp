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
  for (const char* variant : {",variant=roberta,positions=34", ",variant=distilbert"}) {
    CHECK(kept_bytes(formula_graph_of(small_bert + "fp32" + variant), "layer1.") == 216'064);
  }
  // DistilBERT drops what its MLPs make alone: 232,448 bytes with factors of 4 bytes.
  CHECK(kept_bytes(formula_graph_of(small_bert + "fp32,dropout=yes,variant=distilbert"), "layer1.") ==
        232'448 - 3 * 2 * 32 * 64);
  CHECK(kept_bytes(formula_graph_of(small_vit + "fp32"), "layer1.") == 114'784);
  CHECK(kept_bytes(formula_graph_of(small_vit + "bf16"), "layer1.") == 57'936 + 4 * 34 * 2);
}

// Likewise of GPT2LMHeadModel, BertForMaskedLM and OPTForCausalLM with eager attention and dropout of one tenth, in
// fp32: 689,152, 443,392 and 271,360 bytes. Dropout keeps factors of 4 bytes there, bools on a GPU: of 2 x 8 x 32 x 32
// weights (OPT drops none) and twice 2 x 32 x 64 values. Scores that OPT bounds, as transformers 4 did and 5 does not,
// are kept.
TEST_CASE("a layer with eager attention keeps the bytes that PyTorch keeps", "[traces][encoders]") {
  const std::int64_t weights = 2 * 8 * 32 * 32, values = 2 * 32 * 64;
  const std::string eager = "fp32,attention=eager,dropout=yes", small_sizes =
                                                                    ":layers=2,width=64,heads=8,sequence=32,"
                                                                    "batch=2,vocabulary=96,positions=32,";
  CHECK(kept_bytes(formula_graph_of("gpt2" + small_sizes + "dtype=" + eager), "layer1.") ==
        689'152 - 3 * (weights + 2 * values));
  CHECK(kept_bytes(formula_graph_of(small_bert + eager), "layer1.") == 443'392 - 3 * (weights + 2 * values));
  CHECK(kept_bytes(formula_graph_of("opt" + small_sizes + "inner=160,dtype=" + eager), "layer1.") ==
        271'360 - 3 * 2 * values + 4 * weights);
  CHECK(parameter_bytes(formula_graph_of("opt:sequence=8")) == 2LL * 1'315'758'080);
}

// Weights of 2 samples, 3 heads, 8 positions: scores are scaled (BERT, GPT-2), masked, and bounded (OPT), made to
// weights and dropped (not in OPT), each by one kernel there. Back: neither the added mask nor the copies have a kernel
// of their own, but the copy of what two samples mixed.
TEST_CASE("eager attention launches a kernel for each step", "[traces][encoders]") {
  const std::string sizes = ":layers=1,width=48,heads=3,sequence=8,batch=2,dtype=fp32,attention=eager,dropout=yes";
  const auto squares = [&](const std::string& model, Phase phase) {
    std::ptrdiff_t count = 0;
    for (const Op& op : formula_graph_of(model + sizes).ops) {
      const auto& graph_loop = op.attributes.front().second;
      count += op.phase == phase && op.name.starts_with("layer0.attention") &&
               graph_loop.find("b a s t") != std::string::npos;
    }
    return count;
  };
  CHECK(squares("gpt2", Phase::forward) == 6);  // score, scale, mask, softmax, dropout, mix
  CHECK(squares("bert", Phase::forward) == 6);
  CHECK(squares("opt", Phase::forward) == 5);
  CHECK(squares("gpt2", Phase::backward) == 8);
  CHECK(squares("bert", Phase::backward) == 7);
  CHECK(squares("opt", Phase::backward) == 6);
}

// Logits of 2 samples, 8 positions and 96 words: the head reads the gradient that it is given.
TEST_CASE("a formula without a loss is given the gradient of its logits", "[traces][encoders]") {
  for (const std::string model : {"gpt2", "bert", "opt"}) {
    const Graph graph = formula_graph_of(model + ":layers=1,width=48,heads=3,sequence=8,batch=2,vocabulary=96,loss=no");
    std::ptrdiff_t readers = 0;
    for (const Op& op : graph.ops) {
      CHECK(op.kind != "cross_entropy");
      for (const TensorId id : op.inputs) {
        if (graph[id].name != "gradient of logits") continue;
        ++readers;
        CHECK(graph[id].kind == TensorKind::input);
        CHECK(graph[id].bytes == Bytes{2 * 8 * 96 * 2});
      }
    }
    CHECK(readers == (model == "bert" ? 3 : 2));  // products, and the sum that is the bias's gradient
  }
}

TEST_CASE("eager attention is refused under autocast", "[traces][encoders]") {
  for (const std::string model : {"gpt2", "bert", "opt"}) {
    CHECK(complaint_of([&] { synthetic_model(model + ":dtype=amp,attention=eager"); }) ==
          model + ": attention=eager: expected one dtype, found amp, under which types of scores change");
  }
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
  // What counts the words before each of RoBERTa's is one op; a slice more is put into zeros for its classifier.
  const Graph roberta = formula_graph_of(small_bert + "bf16,head=classes,variant=roberta,positions=34"),
              distilled = formula_graph_of(small_bert + "bf16,head=classes,variant=distilbert");
  CHECK(ops_of(roberta, Phase::forward, "embedding") == 8);
  CHECK(ops_of(roberta, Phase::backward, "embedding") == 4);
  CHECK(ops_of(roberta, Phase::backward, "head") == 10);
  CHECK(ops_of(distilled, Phase::forward, "embedding") == 4);
  CHECK(ops_of(distilled, Phase::backward, "embedding") == 4);
  CHECK(ops_of(distilled, Phase::forward, "head") == 3);
  CHECK(ops_of(distilled, Phase::backward, "head") == 9);
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
