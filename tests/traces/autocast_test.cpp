// Decoders and encoder-decoders by formula under torch.autocast: what layers keep, and what they convert.

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <variant>
#include <vector>

#include "sim/ops/op_loop.h"
#include "tests/bad_input.h"
#include "tests/traces/formula_graphs.h"

using namespace plimsoll;

namespace {

const std::string decoder =
                      "llama:layers=2,width=64,heads=8,kv_heads=8,inner=160,sequence=32,batch=2,vocabulary=96,"
                      "dtype=amp",
                  of_heads = ",head_size=16", of_gemma = of_heads + ",norm=gemma,act=gelu,tied=yes",
                  whisper =
                      "whisper:layers=2,decoder=2,width=64,heads=8,inner=160,source=24,sequence=32,batch=2,"
                      "vocabulary=96,positions=32,mels=16,dtype=amp",
                  t5 = "t5:layers=2,decoder=2,width=64,heads=8,head_size=8,inner=160,source=24,sequence=32,batch=2,"
                       "vocabulary=96,dtype=amp";

struct MeasuredLayer {
  std::string model, layer;
  std::int64_t kept;
  std::ptrdiff_t there, back;  ///< conversions
};

/// By torch.autograd.graph.saved_tensors_hooks and a dispatch mode, one layer and two, parameters left out (PyTorch 2.6
/// of Debian 13, transformers 5.15, peft, on a CPU, 2026-11-29; traces/kept_under_autocast.py). GELU's powers are in
/// fp32, as a GPU's autocast has them.
const std::vector<MeasuredLayer> measured{
    {decoder, "layer1.", 317'952, 14, 20},
    {decoder + ",bias=yes,tied=yes", "layer1.", 317'952, 17, 23},
    {decoder + of_heads + ",qk_norm=yes", "layer1.", 485'888, 18, 22},
    {decoder + of_gemma, "layer1.", 384'000, 14, 20},
    {decoder + of_gemma + ",post_norms=yes,logit_cap=yes", "layer1.", 450'560, 18, 24},
    {decoder + of_gemma + ",post_norms=yes,qk_norm=yes", "layer1.", 585'856, 22, 28},
    {decoder + ",joined=yes", "layer1.", 317'952, 8, 14},
    {decoder + ",lora=4", "layer1.", 262'656, 27, 26},
    {whisper, "layer1.", 186'624, 15, 17},
    {whisper, "decoder1.", 333'312, 25, 28},
    {t5, "layer1.", 258'432, 14, 17},
    {t5, "decoder1.", 533'248, 23, 27},
    {t5 + ",act=gated_gelu,tied=no", "layer1.", 423'296, 16, 22},
    {t5 + ",act=gated_gelu,tied=no", "decoder1.", 746'240, 25, 32}};

/// Of ops named "to", and within ops that are several kernels: a norm of bf16 numbers reads them as fp32, and what it
/// made is bf16 again before the scale; a rotation of such has two gradients in fp32.
std::ptrdiff_t conversions(const Graph& graph, const std::string& layer, Phase phase) {
  std::ptrdiff_t count = 0;
  for (const Op& op : graph.ops) {
    if (op.phase != phase || !op.name.starts_with(layer)) continue;
    const bool is_back = phase == Phase::backward;
    const Tensor &read = graph[op.inputs.front()], &made = graph[op.outputs.front()];
    count += op.kind == "to" ? 1 : 0;
    if (op.kind == "rotary" && is_back) count += read.dtype != made.dtype ? 2 : 0;
    if (op.kind != "rms_norm") continue;
    if (is_back ? made.dtype == "bf16" : read.dtype == "bf16") count += is_back && read.dtype == "fp32" ? 3 : 2;
  }
  return count;
}

}  // namespace

TEST_CASE("layers under autocast keep the bytes that PyTorch keeps", "[traces][autocast]") {
  for (const MeasuredLayer& each : measured) {
    INFO(each.model << ": " << each.layer);
    CHECK(kept_bytes(formula_graph_of(each.model), each.layer) == each.kept);
  }
  CHECK(kept_bytes(formula_graph_of(decoder + ",q_rank=24,kv_rank=16,rope_size=4,head_size=4,value_size=8"),
                   "layer1.") == 330'240);
}

TEST_CASE("layers under autocast convert numbers as often as PyTorch does", "[traces][autocast]") {
  for (const MeasuredLayer& each : measured) {
    INFO(each.model << ": " << each.layer);
    const Graph graph = formula_graph_of(each.model);
    CHECK(conversions(graph, each.layer, Phase::forward) == each.there);
    CHECK(conversions(graph, each.layer, Phase::backward) == each.back);
  }
}

TEST_CASE("under autocast parameters and their gradients are fp32, and products read bf16", "[traces][autocast]") {
  for (const MeasuredLayer& each : measured) {
    INFO(each.model);
    const Graph graph = formula_graph_of(each.model);
    for (const Tensor& tensor : graph.tensors) {
      if (tensor.kind == TensorKind::parameter || tensor.gradient_of) CHECK(tensor.dtype == "fp32");
    }
    for (const Op& op : graph.ops) {
      if (op.kind != "linear" && !op.kind.starts_with("_scaled")) continue;
      INFO(op.name);
      CHECK(
          std::ranges::all_of(op.inputs, [&](TensorId t) { return graph[t].dtype != "fp32" || op.kind != "linear"; }));
    }
    for (std::size_t o = 0; o < graph.ops.size(); ++o) {
      INFO(graph.ops[o].name);
      CHECK(std::holds_alternative<OpLoop>(loop_of(graph, id_at<OpId>(o))));
    }
  }
}

// By the bytes that ops of PyTorch's dispatcher read and write (PyTorch 2.6; kept_by_llama.py's `moved` under
// autocast): a rotation of bf16 numbers with tables in fp32 30.5 and 48.5 bytes a number there and back, Phi-3's 38.5
// and 56.5, of which the tables are half a byte; a norm of bf16 numbers with a scale in fp32 38.05 and 108.09.
TEST_CASE("norms and rotations of unlike types move the bytes that PyTorch's kernels move", "[traces][autocast]") {
  const auto moved = [](const Graph& graph, const std::string& name) {
    return static_cast<double>(std::ranges::find(graph.ops, name, &Op::name)->bytes_moved->count) / (2 * 32 * 64);
  };
  const Graph plain = formula_graph_of(decoder), joined = formula_graph_of(decoder + ",joined=yes"),
              normed = formula_graph_of(decoder + ",qk_norm=yes");
  const std::string rotary = "layer1.attention.q.rotary", norm = "layer1.attention.q_norm";
  CHECK(moved(plain, rotary) == 30);
  CHECK(moved(plain, rotary + " backward") == 48);
  CHECK(moved(joined, rotary) == 38);
  CHECK(moved(joined, rotary + " backward") == 56);
  CHECK(moved(normed, norm) == Approx(38.05).epsilon(0.01));
  CHECK(moved(normed, norm + " backward") == Approx(108.09).epsilon(0.01));
}

TEST_CASE("what autocast does not reach is refused", "[traces][autocast]") {
  CHECK(complaint_of([] { formula_graph_of(decoder + ",lora=4,base=nf4"); }) ==
        "llama: dtype=amp: not with base=nf4, whose products choose their type themselves");
  CHECK(complaint_of([] { formula_graph_of(decoder + ",products=fp8"); }) ==
        "llama: dtype=amp: not with products=fp8, which copy from one dtype");
}
