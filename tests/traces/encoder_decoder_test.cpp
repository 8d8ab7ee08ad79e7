// Whisper and T5 by formula: what layers keep, and how a decoder's layers hang together with the encoder.

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <tuple>
#include <variant>

#include "sim/ops/op_loop.h"
#include "tests/bad_input.h"
#include "tests/traces/formula_graphs.h"
#include "traces/trace_file.h"

using namespace plimsoll;

namespace {

const std::string small_whisper =
                      "whisper:layers=2,decoder=2,width=64,heads=8,inner=160,source=24,sequence=32,batch=2,"
                      "vocabulary=96,positions=32,mels=16,dtype=",
                  small_t5 =
                      "t5:layers=2,decoder=2,width=64,heads=8,head_size=8,inner=160,source=24,sequence=32,batch=2,"
                      "vocabulary=96,dtype=";

std::ptrdiff_t ops_with(const Graph& graph, const std::string& part) {
  return std::ranges::count_if(graph.ops, [&](const Op& op) { return op.name.find(part) != std::string::npos; });
}

std::string first_input(const Graph& graph, const std::string& op) {
  return graph[std::ranges::find(graph.ops, op, &Op::name)->inputs.at(0)].name;
}

}  // namespace

// By torch.autograd.graph.saved_tensors_hooks, one layer and two of either stack, parameters left out (PyTorch 2.6 of
// Debian 13, transformers 5.15, on a CPU, 2026-11-29; traces/kept_by_models.py). A CPU's norms keep means and roots in
// bf16, a GPU's in fp32: two of each more, of 2 bytes a position.
TEST_CASE("layers of Whisper keep the bytes that PyTorch keeps", "[traces][decoders]") {
  const Graph narrow = formula_graph_of(small_whisper + "bf16"), wide = formula_graph_of(small_whisper + "fp32");
  CHECK(kept_bytes(narrow, "layer1.") == 87'936 + 4 * 48 * 2);
  CHECK(kept_bytes(narrow, "decoder1.") == 172'800 + 6 * 64 * 2);
  CHECK(kept_bytes(wide, "layer1.") == 174'336);
  CHECK(kept_bytes(wide, "decoder1.") == 341'504);
}

TEST_CASE("layers of T5 keep the bytes that PyTorch keeps", "[traces][decoders]") {
  for (const auto& [options, encoder, decoder] : {std::tuple{"bf16", 157'056, 377'600},
                                                  {"fp32", 190'848, 426'752},
                                                  {"bf16,act=gated_gelu,tied=no", 249'216, 500'480},
                                                  {"fp32,act=gated_gelu,tied=no", 375'168, 672'512}}) {
    INFO(options);
    const Graph graph = formula_graph_of(small_t5 + options);
    CHECK(kept_bytes(graph, "layer1.") == encoder);
    CHECK(kept_bytes(graph, "decoder1.") == decoder);
  }
}

// Likewise with dropout of one tenth: 218,496 and 350,592 bytes of an encoder's layer. A CPU keeps factors, 2 and 4
// bytes each, a GPU bools: of 2 x 8 x 24 x 24 weights, 2 x 24 x 160 inner values and twice 2 x 24 x 64 others.
TEST_CASE("dropout of T5 keeps a byte a number", "[traces][decoders]") {
  const std::int64_t numbers = 2 * 8 * 24 * 24 + 2 * 24 * 160 + 2 * 2 * 24 * 64;
  CHECK(kept_bytes(formula_graph_of(small_t5 + "bf16,dropout=yes"), "layer1.") == 218'496 - numbers);
  CHECK(kept_bytes(formula_graph_of(small_t5 + "fp32,dropout=yes"), "layer1.") == 350'592 - 3 * numbers);
}

TEST_CASE("a decoder's layers read what the encoder made, and all of them give it gradients", "[traces][decoders]") {
  for (const std::string& model : {small_whisper + "bf16", small_t5 + "bf16"}) {
    INFO(model);
    const Graph graph = formula_graph_of(model);
    for (const char* op : {"decoder0.cross.key", "decoder1.cross.key", "decoder1.cross.value"})
      CHECK(first_input(graph, op) == "memory.out");
    CHECK(first_input(graph, "decoder1.cross.query") == "decoder1.cross.norm.out");
    CHECK(ops_with(graph, ".memory backward (both ways)") == 1);  // of two layers
  }
}

// The first layer of a stack makes the bias of all: each layer's scores give it a gradient.
TEST_CASE("layers of T5 share the bias of their stack", "[traces][decoders]") {
  const Graph graph = formula_graph_of(small_t5 + "bf16,layers=3");
  CHECK(ops_with(graph, ".score backward (bias)") == 2 + 1);
  CHECK(ops_with(graph, ".positions backward (weight)") == 2);
  CHECK(ops_with(formula_graph_of(small_t5 + "bf16,batch=1"), ".clone") == 2 * 3);  // of what attentions make
}

TEST_CASE("each trained parameter of an encoder and a decoder has a gradient", "[traces][decoders]") {
  for (const auto& [model, frozen] :
       {std::tuple{small_whisper + "bf16", 1}, {small_t5 + "bf16", 0}, {small_t5 + "bf16,tied=no", 0}}) {
    INFO(model);
    const Graph graph = formula_graph_of(model);
    const auto count = [&](TensorKind kind) { return std::ranges::count(graph.tensors, kind, &Tensor::kind); };
    CHECK(count(TensorKind::parameter) == count(TensorKind::parameter_gradient) + frozen);
  }
}

TEST_CASE("each op of an encoder and a decoder has a loop", "[traces][decoders]") {
  for (const std::string& model : {small_whisper + "bf16", small_whisper + "amp", small_t5 + "bf16,dropout=yes",
                                   small_t5 + "fp32,act=gated_gelu,tied=no,batch=1"}) {
    const Graph graph = formula_graph_of(model);
    for (std::size_t o = 0; o < graph.ops.size(); ++o) {
      INFO(model << ": " << graph.ops[o].name);
      CHECK(std::holds_alternative<OpLoop>(loop_of(graph, id_at<OpId>(o))));
    }
  }
}

TEST_CASE("wrong sizes of Whisper are named", "[traces][decoders]") {
  CHECK(complaint_of([] { load_trace("whisper:sequence=449"); }) ==
        "whisper: sequence: at most positions 448, found 449");
  CHECK(complaint_of([] { load_trace("whisper:heads=7"); }) == "whisper: heads: must divide width 768, found 7");
}
