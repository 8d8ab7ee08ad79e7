// Llama's decoder by formula: its parameters are those that are published, and what a layer keeps is what PyTorch
// keeps.

#include "traces/models/llama_graph.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <tuple>

#include "sim/ops/op_loop.h"
#include "tests/bad_input.h"
#include "tests/traces/formula_graphs.h"
#include "traces/trace_file.h"

using namespace plimsoll;

TEST_CASE("a Llama by formula has the parameters that are published", "[traces][llama]") {
  CHECK(parameter_bytes(formula_graph_of("llama:sequence=8")) == 2LL * 8'030'261'248);
  CHECK(parameter_bytes(formula_graph_of(
            "llama:layers=22,width=2048,heads=32,kv_heads=4,inner=5632,vocabulary=32000,sequence=8")) ==
        2LL * 1'100'048'384);
  CHECK(parameter_bytes(formula_graph_of("llama:layers=80,width=8192,heads=64,inner=28672,sequence=8")) ==
        2LL * 70'553'706'496);
}

TEST_CASE("a Llama's products have six flops for each parameter and token, and its attention the causal half",
          "[traces][llama]") {
  const Graph graph =
      formula_graph_of("llama:layers=3,width=64,heads=8,kv_heads=2,inner=160,sequence=32,batch=2,vocabulary=96");
  double products = 0, attention = 0;
  for (const Op& op : graph.ops) {
    if (op.kind == "linear") products += op.flops->count;
    if (op.kind.starts_with("_scaled")) attention += op.flops->count;
  }
  const double tokens = 2 * 32, weights = 3 * (64 * 64 * 2 + 2 * 64 * 16 + 3 * 64 * 160) + 64 * 96;
  CHECK(products == 6 * tokens * weights);
  CHECK(attention == 3 * (2 + 5) * tokens * 32 * 64);  // 2 products there, 5 back, half of 32 x 32 a sample
}

// By torch.autograd.graph.saved_tensors_hooks of LlamaForCausalLM, one layer and two, parameters left out (PyTorch 2.6
// of Debian 13, transformers 5.15, on a CPU, 2026-11-28): 64 wide, 8 heads, each with its keys, since PyTorch 2.6 has
// no fused attention of shared keys on a CPU.
TEST_CASE("a layer of a Llama keeps the bytes that PyTorch keeps", "[traces][llama]") {
  const std::string sizes =
      "llama:layers=2,width=64,heads=8,kv_heads=8,inner=160,sequence=32,batch=2,vocabulary=96,dtype=";
  CHECK(kept_bytes(formula_graph_of(sizes + "bf16"), "layer1.") == 182'784);
  CHECK(kept_bytes(formula_graph_of(sizes + "fp32"), "layer1.") == 330'240);
}

// By the bytes that each op of PyTorch's dispatcher reads and writes, views aside: 36.05 and 92.09 a number of a norm
// there and back in bf16, 28.05 and 92.09 in fp32, and 10.1 and 14.1 numbers of a rotation (traces/kept_by_llama.py).
TEST_CASE("a Llama's norms and rotations move the bytes that PyTorch's kernels move", "[traces][llama]") {
  const auto moved = [](const Graph& graph, const std::string& name) {
    const auto op = std::ranges::find(graph.ops, name, &Op::name);
    REQUIRE(op != graph.ops.end());
    return static_cast<double>(op->bytes_moved->count);
  };
  for (const auto& [dtype, element, there, back] : {std::tuple{"bf16", 2, 36.05, 92.09}, {"fp32", 4, 28.05, 92.09}}) {
    const Graph graph = formula_graph_of(std::string("llama:layers=2,width=64,heads=8,inner=160,sequence=32,batch=2,"
                                                     "vocabulary=96,dtype=") +
                                         dtype);
    const double numbers = 2 * 32 * 64;
    CHECK(moved(graph, "head.norm") / numbers == Approx(there).epsilon(0.01));
    CHECK(moved(graph, "head.norm backward") / numbers == Approx(back).epsilon(0.01));
    CHECK(moved(graph, "layer0.attention.q.rotary") / (element * numbers) == Approx(10.1).epsilon(0.02));
    CHECK(moved(graph, "layer0.attention.q.rotary backward") / (element * numbers) == Approx(14.1).epsilon(0.02));
  }
}

TEST_CASE("every op of a Llama has a loop that its shapes agree with", "[traces][llama]") {
  for (const char* dtype : {"bf16", "fp32"}) {
    const Graph graph =
        formula_graph_of(std::string("llama:layers=2,width=64,heads=8,kv_heads=2,inner=160,sequence=32,batch=2,"
                                     "vocabulary=96,dtype=") +
                         dtype);
    for (std::size_t o = 0; o < graph.ops.size(); ++o) {
      const std::variant<OpLoop, std::string> loop = loop_of(graph, id_at<OpId>(o));
      const std::string* why = std::get_if<std::string>(&loop);
      INFO(graph.ops[o].name << ": " << (why == nullptr ? "" : *why));
      CHECK(why == nullptr);
    }
    const Trace trace = load_trace("llama:layers=1,width=8,heads=2,kv_heads=1,inner=8,sequence=4,vocabulary=8");
    CHECK(parse_trace(trace_text(trace), "again") == trace);
  }
}

TEST_CASE("wrong sizes of a Llama are refused", "[traces][llama]") {
  CHECK(complaint_of([] { formula_graph_of("llama:heads=7"); }) == "llama: heads: must divide width 4096, found 7");
  CHECK(complaint_of([] { formula_graph_of("llama:kv_heads=5"); }) == "llama: kv_heads: must divide heads 32, found 5");
  CHECK(complaint_of([] { formula_graph_of("llama:sequence=1048576,batch=1048576"); }) ==
        "llama: a tensor of more than 4 PiB");
  CHECK(complaint_of([] { formula_graph_of("llama:kv_head=8"); }).find("did you mean 'kv_heads'?") !=
        std::string::npos);
}
