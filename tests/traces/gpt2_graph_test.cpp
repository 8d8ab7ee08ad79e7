// GPT-2 by formula: its published parameters, what a layer keeps in each precision, and the ops that PyTorch launches.

#include "traces/models/gpt2_graph.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <iterator>
#include <set>
#include <string>
#include <variant>

#include "sim/ops/op_loop.h"
#include "tests/bad_input.h"
#include "tests/traces/formula_graphs.h"
#include "traces/trace_file.h"

using namespace plimsoll;

namespace {

const std::string small_gpt2 = "gpt2:layers=2,width=64,heads=8,sequence=32,batch=2,vocabulary=96,positions=32,dtype=";

}  // namespace

TEST_CASE("a GPT-2 by formula has the parameters that are published, its head's among them once", "[traces][gpt2]") {
  CHECK(parameter_bytes(formula_graph_of("gpt2:sequence=8")) == 2LL * 124'439'808);
  CHECK(parameter_bytes(formula_graph_of("gpt2:layers=24,width=1024,heads=16,sequence=8,dtype=fp32")) ==
        4LL * 354'823'168);
  CHECK(parameter_bytes(formula_graph_of("gpt2:sequence=8,dtype=amp")) == 4LL * 124'439'808);
}

TEST_CASE("the table of tokens of a GPT-2 has one gradient, to which the head and the embedding add",
          "[traces][gpt2]") {
  for (const char* dtype : {"amp", "bf16"}) {
    const Graph graph = formula_graph_of(small_gpt2 + dtype);
    const auto is_its_gradient = [&](TensorId id) {
      return graph[id].gradient_of && graph[*graph[id].gradient_of].name == "embedding.table";
    };
    std::set<TensorId> gradients;
    std::ptrdiff_t makers = 0;
    for (const Op& op : graph.ops) {
      makers += std::ranges::count_if(op.outputs, is_its_gradient);
      std::ranges::copy_if(op.outputs, std::inserter(gradients, gradients.end()), is_its_gradient);
    }
    CHECK(gradients.size() == 1);
    CHECK(makers == 2);
  }
}

// By torch.autograd.graph.saved_tensors_hooks of GPT2LMHeadModel, one layer and two, parameters left out (PyTorch 2.6
// of Debian 13, transformers 5.15, on a CPU, 2026-11-28; traces/kept_by_models.py): 461,824 bytes in fp32, 231,936 in
// bf16, where a CPU's norms keep their means and roots in bf16, a GPU's in fp32.
TEST_CASE("a layer of a GPT-2 keeps the bytes that PyTorch keeps", "[traces][gpt2]") {
  CHECK(kept_bytes(formula_graph_of(small_gpt2 + "fp32"), "layer1.") == 461'824);
  CHECK(kept_bytes(formula_graph_of(small_gpt2 + "tf32"), "layer1.") == 461'824);
  CHECK(kept_bytes(formula_graph_of(small_gpt2 + "bf16"), "layer1.") == 231'936 + 4 * 64 * 2);
}

// 84 bytes a number of the width and token: sums of 4 that both norms read, their results, queries, keys, values and
// what attention makes of 2, in GELU 2 + 3 times 4 + 2 of 4 numbers; then means and roots, 4 bytes a head and token,
// and the copies of weights.
TEST_CASE("a layer of a GPT-2 under autocast keeps its sums and GELU's powers in fp32", "[traces][gpt2]") {
  const std::int64_t tokens = 64, width = 64;
  CHECK(kept_bytes(formula_graph_of(small_gpt2 + "amp"), "layer1.") ==
        tokens * (84 * width + 4 * 4 + 8 * 4) + 2 * 12 * width * width);
}

// Of the recording of two steps on an H100 (PyTorch 2.11, transformers 5.17): kernels a layer, without clearing memory.
TEST_CASE("a layer of a GPT-2 launches the ops that PyTorch launches under autocast", "[traces][gpt2]") {
  const Graph graph = formula_graph_of(small_gpt2 + "amp");
  const auto launched = [&](Phase phase) {
    return std::ranges::count_if(graph.ops,
                                 [&](const Op& op) { return op.phase == phase && op.name.starts_with("layer1."); });
  };
  CHECK(launched(Phase::forward) == 29);
  CHECK(launched(Phase::backward) == 45);
}

TEST_CASE("logits that are kept to the end are read by the last backward", "[traces][gpt2]") {
  for (const char* model : {"gpt2:layers=1,sequence=8,logits=end", "llama:layers=1,sequence=8,logits=end"}) {
    const Graph graph = formula_graph_of(model);
    const Op& last = graph.ops.back();
    CHECK(std::ranges::any_of(last.inputs, [&](TensorId id) { return graph[id].name == "logits"; }));
  }
}

TEST_CASE("every op of a GPT-2 has a loop that its shapes agree with", "[traces][gpt2]") {
  for (const char* dtype : {"amp", "bf16", "fp16", "fp32", "tf32"}) {
    const Graph graph = formula_graph_of(small_gpt2 + dtype + ",logits=end");
    for (std::size_t o = 0; o < graph.ops.size(); ++o) {
      const std::variant<OpLoop, std::string> loop = loop_of(graph, id_at<OpId>(o));
      const std::string* why = std::get_if<std::string>(&loop);
      INFO(graph.ops[o].name << ": " << (why == nullptr ? "" : *why));
      CHECK(why == nullptr);
    }
    const Trace trace = load_trace(small_gpt2 + dtype);
    CHECK(parse_trace(trace_text(trace), "again") == trace);
  }
}

TEST_CASE("wrong sizes of a GPT-2 are refused", "[traces][gpt2]") {
  CHECK(complaint_of([] { formula_graph_of("gpt2:heads=7"); }) == "gpt2: heads: must divide width 768, found 7");
  CHECK(complaint_of([] { formula_graph_of("gpt2:sequence=2048"); }) ==
        "gpt2: sequence: at most positions 1024, found 2048");
  CHECK(complaint_of([] { formula_graph_of("gpt2:dtype=amb"); }) ==
        "gpt2:dtype=amb: dtype: expected amp, bf16, fp16, fp32 or tf32, found 'amb'");
  CHECK(complaint_of([] { formula_graph_of("gpt2:dtyp=amp"); }).find("did you mean 'dtype'?") != std::string::npos);
}
