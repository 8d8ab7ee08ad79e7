// What Megatron-LM launches besides its products: bytes by hand, and that ranks, pipelines and savers take it.

#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <string>

#include "platforms/platform_file.h"
#include "strategies/compose/spec.h"
#include "strategies/compose/transformed.h"
#include "tests/bad_input.h"
#include "tests/hybrid/judged_plan.h"
#include "traces/models/synthetic.h"

namespace plimsoll {
namespace {

constexpr std::int64_t b = 2, s = 8, h = 16, words = 32, wide = 2;  // bytes of a number
const std::string sizes =
    "transformer:layers=1,width=16,heads=4,sequence=8,batch=2,vocabulary=32,view=graph,dropout=yes,dtype=fp16";

Graph graph_by(const std::string& ops) {
  return std::get<Graph>(synthetic_model(sizes + ",ops=" + ops));
}

std::int64_t moved(const Graph& graph, std::uint32_t stage, Phase phase) {
  std::int64_t sum = 0;
  for (const Op& op : graph.ops) {
    if (op.stage == stage && op.phase == phase) sum += op.bytes_moved->count;
  }
  return sum;
}

/// What forwards of the stage make and backwards read.
std::int64_t kept(const Graph& graph, std::uint32_t stage) {
  std::map<StorageId, std::int64_t> bytes;
  for (const Op& of : graph.ops) {
    for (const TensorId made : of.outputs) {
      const bool is_read = std::ranges::any_of(graph.ops, [&](const Op& op) {
        return op.phase == Phase::backward && std::ranges::count(op.inputs, made) > 0;
      });
      if (of.stage == stage && of.phase == Phase::forward && is_read)
        bytes[graph[made].storage] = graph[made].bytes.count;
    }
  }
  std::int64_t sum = 0;
  for (const auto& [storage, each] : bytes) sum += each;
  return sum;
}

TEST_CASE("Megatron-LM's copies, sums and loss move what counting by hand says", "[hybrid]") {
  const Graph joined = graph_by("joined"), apart = graph_by("megatron");
  const auto more = [&](std::uint32_t stage, Phase phase) {
    return moved(apart, stage, phase) - moved(joined, stage, phase);
  };
  constexpr std::int64_t sbh = s * b * h, logits = s * b * words;
  constexpr std::uint32_t embedding = 0, attention = 1, mlp = 2, head = 3, loss = 4;
  CHECK(more(embedding, Phase::forward) == (2 * wide + 1) * sbh);  // dropout: read, written, its mask
  CHECK(more(embedding, Phase::backward) == (2 * wide + 1) * sbh);
  CHECK(more(attention, Phase::forward) == 2 * wide * sbh);  // the result from heads to tokens
  // Three gradients joined and read again for the biases; a sum of three values in place of one read more.
  CHECK(more(attention, Phase::backward) == (6 + 3 + 3 - 1) * wide * sbh);
  CHECK(more(mlp, Phase::forward) == 0);
  CHECK(more(mlp, Phase::backward) == (4 + 3 - 1) * wide * sbh);
  CHECK(more(head, Phase::forward) == 0);
  CHECK(more(head, Phase::backward) == 0);
  // To fp32; maximum; subtraction, exponential and division in place; sum. Backward scaled in place and rounded.
  CHECK(moved(apart, loss, Phase::forward) == (6 + 4 + 8 + 8 + 4 + 8) * logits);
  CHECK(moved(apart, loss, Phase::backward) == (8 + 6) * logits);
  CHECK(kept(apart, attention) == kept(joined, attention));
  CHECK(kept(apart, mlp) == kept(joined, mlp));
  CHECK(kept(apart, embedding) - kept(joined, embedding) == sbh);
  CHECK(kept(apart, loss) == 4 * logits);
}

TEST_CASE("models with Megatron-LM's ops are planned by all sorts of passes", "[hybrid]") {
  const std::string trace =
      "transformer:layers=4,width=64,heads=8,sequence=16,batch=2,vocabulary=64,view=graph,dropout=yes,ops=megatron";
  for (const char* spec :
       {"store_all", "chain|full_recompute", "chain|rotor",
        "megatron(tensor=2,scatter=yes)|1f1b(sends=blocking)|full_recompute",
        "megatron(tensor=2,scatter=yes)|data_parallel(ranks=2,overlap=no)|interleaved(chunks=2)|rotor",
        "recompute_ops|megatron(tensor=2,sequence=yes)|1f1b", "megatron(tensor=2)|zb_h1", "zero3|full_recompute"}) {
    CAPTURE(spec);
    judged_plan(problem_on(trace, "h100_sxm_8", 8, spec), spec);
  }
}

TEST_CASE("roots that foreach keeps are of a rank's own shares", "[hybrid]") {
  const std::vector<Pass> passes = parse_spec("megatron(tensor=2)|zero1(ranks=2)", "test");
  auto made =
      make_problem(synthetic_model(sizes), load_platform("h100_sxm_8"),
                   {.micro_batches = 2, .optimizer = Optimizer::adam, .update_kernels = UpdateKernels::foreach});
  const Problem rank = transformed(std::get<Problem>(std::move(made)), passes);
  std::int64_t states = 0;  // an fp32 copy and two moments
  for (const Tensor& t : rank.graph.tensors) states += t.kind == TensorKind::optimizer_state ? t.bytes.count : 0;
  for (const Op& op : rank.graph.ops) {
    if (op.phase == Phase::update) CHECK(op.workspace.count == states / 3);
  }
}

TEST_CASE("what scatter and ops cannot do is refused with the reason", "[hybrid]") {
  const std::string trace = "transformer:layers=4,width=64,heads=8,sequence=16,batch=2,vocabulary=64,view=graph";
  CHECK(complaint_of([&] { problem_on(trace, "h100_sxm_8", 8, "megatron(tensor=2,sequence=yes,scatter=yes)"); }) ==
        "megatron: scatter=yes: with sequence=yes values between stages are shares already");
  const char* spec = "megatron(tensor=2,scatter=yes)|bpipe";
  CHECK(complaint_of([&] { plan(problem_on(trace, "h100_sxm_8", 8, spec), parse_spec(spec, "test"), std::nullopt); }) ==
        "bpipe: megatron's scatter=yes: each device hands its partner values of its own");
  CHECK(complaint_of([] { synthetic_model("transformer:ops=megatron"); }) == "transformer: ops: only of view=graph");
}

}  // namespace
}  // namespace plimsoll
