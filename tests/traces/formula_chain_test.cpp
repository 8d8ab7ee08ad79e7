// A decoder by formula as a chain is the graph in stages.

#include "traces/models/formula_chain.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "tests/bad_input.h"
#include "tests/traces/formula_graphs.h"
#include "traces/trace_file.h"

using namespace plimsoll;

namespace {

const std::string small_chain =
    "llama:layers=3,width=64,heads=8,kv_heads=4,inner=160,sequence=32,batch=2,vocabulary=96,";

Chain formula_chain_of(const std::string& reference) {
  return std::get<Chain>(synthetic_model(reference));
}

}  // namespace

TEST_CASE("a decoder's chain has the work, the traffic, the times and the parameters of its graph", "[traces][llama]") {
  for (const char* options : {"dtype=bf16", "dtype=fp32", "window=8", "experts=4,dense_layers=1,shared=1",
                              "kv_rank=16,rope_size=4,head_size=4,value_size=8"}) {
    INFO(options);
    const Graph graph = formula_graph_of(small_chain + options);
    const Chain chain = formula_chain_of(small_chain + options + ",view=chain");
    REQUIRE(chain.stages.size() == 1 + 2 * 3 + 2);
    for (std::uint32_t s = 0; s < chain.stages.size(); ++s) {
      const Stage& stage = chain.stages[s];
      double flops[2] = {0, 0}, seconds[2] = {0, 0};
      std::int64_t moved[2] = {0, 0};
      for (const Op& op : graph.ops) {
        if (op.stage != s) continue;
        const int back = op.phase == Phase::forward ? 0 : 1;
        flops[back] += op.flops->count;
        seconds[back] += op.duration->value;
        moved[back] += op.bytes_moved->count;
      }
      CHECK(stage.forward_flops->count == flops[0]);
      CHECK(stage.backward_flops->count == flops[1]);
      CHECK(stage.forward_bytes_moved->count == moved[0]);
      CHECK(stage.backward_bytes_moved->count == moved[1]);
      CHECK(stage.forward.value == Approx(seconds[0]));
      CHECK(stage.backward.value == Approx(seconds[1]));
    }
    std::int64_t parameters = 0;
    for (const Parameter& parameter : chain.parameters) parameters += parameter.bytes.count;
    CHECK(parameters == parameter_bytes(graph));
  }
}

TEST_CASE("a stage of a decoder's chain saves what the graph's backward reads, and its output", "[traces][llama]") {
  for (const char* dtype : {"dtype=bf16", "dtype=fp32"}) {
    const Graph graph = formula_graph_of(small_chain + dtype);
    const Chain chain = formula_chain_of(small_chain + dtype + std::string(",view=chain"));
    const std::int64_t sum = 2 * 32 * 64 * (std::string(dtype) == "dtype=bf16" ? 2 : 4);
    for (const std::size_t stage : {1, 2, 3}) {
      const std::string& name = chain.stages[stage].name;
      INFO(name);
      // In fp32 norms keep the block's input itself, which is the stage's before.
      const std::int64_t reads_output = chain.stages[stage + 1].keeps_input ? sum : 0;
      CHECK(chain.stages[stage].output.count == sum);
      CHECK(chain.stages[stage].saved.count - sum + reads_output == kept_bytes(graph, name + "."));
    }
  }
}

TEST_CASE("a decoder's chain is a trace of stages, and has none where logits go back", "[traces][llama]") {
  const Trace trace = load_trace(small_chain + "view=chain");
  CHECK(parse_trace(trace_text(trace), "again") == trace);
  CHECK(complaint_of([] { formula_chain_of(small_chain + "view=chain,logits=end"); }) ==
        "llama: view: no chain: 'logits' goes back from stage 7 to stage 0");
}
