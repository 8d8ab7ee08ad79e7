// Decoders with sliding windows, experts and latent attention by formula: parameters, work, and what layers keep.

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

std::string small_decoder(const std::string& options, const std::string& dtype = "bf16") {
  return "llama:layers=2,width=64,heads=8,kv_heads=8,inner=160,sequence=32,batch=2,vocabulary=96,dtype=" + dtype + "," +
         options;
}

const std::string small_experts = "experts=4,top_k=2",
                  small_latent = "q_rank=24,kv_rank=16,rope_size=4,head_size=4,value_size=8";

double flops_of(const Graph& graph, const std::string& part) {
  double flops = 0;
  for (const Op& op : graph.ops) flops += op.name.find(part) == std::string::npos ? 0 : op.flops->count;
  return flops;
}

}  // namespace

// Counted by PyTorch of the models that transformers 5.15 makes of its default sizes (traces/kept_by_models.py):
// Mixtral 8x7B and DeepSeek-V3.
TEST_CASE("decoders of experts and latent attention have the parameters of their models", "[traces][llama]") {
  CHECK(parameter_bytes(formula_graph_of("llama:layers=32,experts=8,vocabulary=32000,sequence=8")) ==
        2LL * 46'702'792'704);
  CHECK(parameter_bytes(formula_graph_of(
            "llama:layers=61,width=7168,heads=128,inner=18432,vocabulary=129280,sequence=8,experts=256,top_k=8,"
            "expert_inner=2048,shared=1,dense_layers=3,q_rank=1536,kv_rank=512")) == 2LL * 671'026'404'352);
}

// By torch.autograd.graph.saved_tensors_hooks, one layer and two, parameters left out (PyTorch 2.6 of Debian 13,
// transformers 5.15, on a CPU, 2026-11-28; traces/kept_by_models.py). With a window a CPU keeps a mask of a sample's
// tokens by its tokens, which fused attention of windows has not: 4,096 and 8,192 of Mistral's 186,880 and 338,432.
// What only DeepSeek's choice of groups keeps is gone when the forward is (1,792).
TEST_CASE("layers of Mistral, Mixtral and DeepSeek-V3 keep the bytes that PyTorch keeps", "[traces][llama]") {
  for (const auto& [options, bf16, fp32] :
       {std::tuple{std::string("window=8"), 186'880 - 4'096, 338'432 - 8'192},
        {small_experts, 304'000, 566'144},
        {small_latent, 216'064, 387'072},
        {small_latent + "," + small_experts + ",expert_inner=48,shared=1,router=sigmoid", 264'576, 442'752}}) {
    INFO(options);
    CHECK(kept_bytes(formula_graph_of(small_decoder(options)), "layer1.") == bf16);
    CHECK(kept_bytes(formula_graph_of(small_decoder(options, "fp32")), "layer1.") == fp32);
  }
}

// By the same hooks, of peft's adapters of rank 4 on queries, keys, values and the last projection.
TEST_CASE("a layer with adapters keeps the bytes that PyTorch keeps, and trains nothing else", "[traces][llama]") {
  CHECK(kept_bytes(formula_graph_of(small_decoder("lora=4")), "layer1.") == 199'168);
  CHECK(kept_bytes(formula_graph_of(small_decoder("lora=4", "fp32")), "layer1.") == 244'224);
  const Graph graph = formula_graph_of(small_decoder("lora=4"));
  std::int64_t trained = 0;
  for (const Tensor& tensor : graph.tensors) {
    if (!tensor.gradient_of) continue;
    CHECK(graph[*tensor.gradient_of].name.find(".adapter.") != std::string::npos);
    trained += tensor.bytes.count;
  }
  CHECK(trained == 4LL * 2 * 4 * 4 * (64 + 64));  // fp32, layers, projections, rank
}

// The QLoRA paper's 4 bits and 0.127 a number: a byte for 64 numbers, 4 for 64 times 256. Of Llama-3 8B all products in
// layers are packed, as transformers has them: 32 layers of 2 projections of 4,096 by 4,096, 2 of 4,096 by 1,024 and 3
// of 4,096 by 14,336.
TEST_CASE("frozen weights of a decoder take 4.127 bits a number, and the rest what it took", "[traces][llama]") {
  const std::string model = "llama:sequence=8,lora=16";
  constexpr std::int64_t packed = 32LL * 4096 * (2 * 4096 + 2 * 1024 + 3 * 14336);
  const std::int64_t frozen = parameter_bytes(formula_graph_of(model)),
                     saved = frozen - parameter_bytes(formula_graph_of(model + ",base=nf4"));
  CHECK(static_cast<double>(saved) == Approx(packed * (16 - 4 - 0.126953125) / 8));
  // What a number too many for its block takes: 4,097 blocks in 17 groups.
  const Graph odd =
      formula_graph_of("llama:layers=1,width=64,heads=1,kv_heads=1,inner=4097,sequence=4,lora=1,base=nf4");
  const auto gate = std::ranges::find(odd.tensors, "layer0.mlp.gate.weight", &Tensor::name);
  CHECK(gate->bytes == Bytes{64 * 4097 / 2 + 4097 + 17 * 4});
}

// By the hooks, of adapters beside products that read packed weights as bitsandbytes' do (traces/kept_by_models.py).
TEST_CASE("products of packed weights keep nothing but what adapters keep", "[traces][llama]") {
  for (const auto& [dtype, kept] : {std::pair{"bf16", 199'168}, {"fp32", 244'224}}) {
    const Graph graph = formula_graph_of(small_decoder("lora=4,base=nf4", dtype));
    CHECK(kept_bytes(graph, "layer1.") == kept);
    // Each of seven weights is unpacked there and back, with the largest of each block in fp32 beside. Queries, keys
    // and values of the first layer have no gradient of their input.
    const auto unpacks = [](const Op& op) {
      return op.kind == "dequantize" && op.name.starts_with("layer1.mlp.gate") &&
             op.workspace == Bytes{64 * 160 / 64 * 4};
    };
    CHECK(std::ranges::count(graph.ops, "dequantize", &Op::kind) == 2 * 2 * 7 - 3);
    CHECK(std::ranges::count_if(graph.ops, unpacks) == 2);
  }
}

TEST_CASE("a window leaves attention the pairs of queries and keys within it", "[traces][llama]") {
  const auto attention = [](const std::string& options) {
    return flops_of(formula_graph_of(small_decoder(options)), ".flash");
  };
  const double all = 2 * 2 * 7 * 2 * 64 * (32 * 32 / 2.0);  // layers, samples, products of 2 flops, width, pairs
  CHECK(attention("window=32") == all);
  CHECK(attention("window=100") == all);
  CHECK(attention("window=8") == all * (32 * 8 - 8 * 8 / 2.0) / (32 * 32 / 2.0));
}

TEST_CASE("experts' products have the work of top_k MLPs a token", "[traces][llama]") {
  const Graph graph = formula_graph_of(small_decoder("experts=8,top_k=3,expert_inner=48,shared=2,dense_layers=1"));
  const double tokens = 64, mlp = 6 * 3 * 64 * 48.0;
  CHECK(flops_of(graph, "layer1.mlp.up") + flops_of(graph, "layer1.mlp.down") == tokens * 3 * mlp);
  CHECK(flops_of(graph, "layer1.mlp.shared") == tokens * 2 * mlp);
  CHECK(flops_of(graph, "layer1.mlp.router") == tokens * 6 * 64 * 8);
  CHECK(flops_of(graph, "layer0.mlp.router") == 0);
}

TEST_CASE("latent attention has the work of its products", "[traces][llama]") {
  const Graph graph = formula_graph_of(small_decoder("q_rank=24,kv_rank=16,rope_size=4,head_size=12,value_size=10"));
  const double tokens = 64;
  CHECK(flops_of(graph, "layer0.attention.q_down") == 6 * tokens * 64 * 24);
  CHECK(flops_of(graph, "layer0.attention.kv_down") == 6 * tokens * 64 * (16 + 4));
  CHECK(flops_of(graph, "layer0.attention.kv") == 6 * tokens * (64 * (16 + 4) + 16 * 8 * (12 + 10)));
  // Two products there, three of queries' and keys' 16 numbers and two of values' 10 back, of half the pairs.
  CHECK(flops_of(graph, "layer0.attention.flash") == 2 * tokens * 16 * 8 * (4 * 16 + 3 * 10));
}

// By a dispatch mode in PyTorch (traces/kept_by_models.py): 51.54 and
// 106.47 bytes a number of the rows of experts in bf16, there and back, 69.95 and 143.88 in fp32.
TEST_CASE("experts move the bytes beside products that PyTorch's ops move", "[traces][llama]") {
  for (const auto& [dtype, there, back] : {std::tuple{"bf16", 51.54, 106.47}, {"fp32", 69.95, 143.88}}) {
    const Graph graph = formula_graph_of(
        std::string("llama:layers=1,width=256,heads=8,inner=320,sequence=2048,vocabulary=96,experts=8,dtype=") + dtype);
    double forward = 0, backward = 0;
    for (const Op& op : graph.ops) {
      if (!op.name.starts_with("layer0.mlp.") || op.kind == "linear" || op.kind == "rms_norm" ||
          op.name == "layer0.mlp.add") {
        continue;
      }
      (op.phase == Phase::forward ? forward : backward) += static_cast<double>(op.bytes_moved->count);
    }
    const double rows = 2.0 * 2048 * 256;
    CHECK(forward / rows == Approx(there).epsilon(0.03));
    CHECK(backward / rows == Approx(back).epsilon(0.03));
  }
}

TEST_CASE("every op of a decoder with options has a loop that its shapes agree with", "[traces][llama]") {
  for (const std::string& options : {std::string("window=8"), std::string("lora=4"), std::string("lora=4,base=nf4"),
                                     std::string("norm=gemma,act=gelu,post_norms=yes,qk_norm=yes,tied=yes"),
                                     small_experts, small_latent, small_experts + ",shared=1," + small_latent,
                                     std::string("kv_rank=16,rope_size=4,head_size=12,value_size=10")}) {
    for (const char* dtype : {"bf16", "fp32"}) {
      const Graph graph = formula_graph_of(small_decoder(options, dtype));
      for (std::size_t o = 0; o < graph.ops.size(); ++o) {
        const std::variant<OpLoop, std::string> loop = loop_of(graph, id_at<OpId>(o));
        const std::string* why = std::get_if<std::string>(&loop);
        INFO(graph.ops[o].name << ": " << (why == nullptr ? "" : *why));
        CHECK(why == nullptr);
      }
      const Trace trace = load_trace(small_decoder(options, dtype));
      CHECK(parse_trace(trace_text(trace), "again") == trace);
    }
  }
}

TEST_CASE("wrong options of a decoder are refused", "[traces][llama]") {
  CHECK(complaint_of([] { formula_graph_of("llama:window=0"); }) ==
        "llama:window=0: window: expected a whole number from 1 to 1048576, found '0'");
  CHECK(complaint_of([] { formula_graph_of("llama:experts=4,top_k=5"); }) ==
        "llama: top_k: at most experts 4, found 5");
  CHECK(complaint_of([] { formula_graph_of("llama:lora=4,experts=4"); }) ==
        "llama: lora: not with experts, kv_rank or logits=end");
  CHECK(complaint_of([] { formula_graph_of("llama:base=nf4"); }) ==
        "llama: base=nf4: expected adapters (lora), since weights of 4 bits are not trained");
  CHECK(complaint_of([] { formula_graph_of("llama:expert=4"); }).find("did you mean 'experts'?") != std::string::npos);
}
