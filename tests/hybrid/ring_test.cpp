// Ring attention: bytes, times and memory of blocks by hand, gradients by numbers, and what the judge of splits finds.

#include "sim/mesh/ring_blocks.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "sim/core/collective_op.h"
#include "sim/core/op_attribute.h"
#include "sim/core/scaling.h"
#include "sim/io/input_error.h"
#include "sim/mesh/check_split.h"
#include "tests/hybrid/gradients_of_ranks.h"
#include "tests/hybrid/judged_plan.h"
#include "traces/models/synthetic.h"

using namespace plimsoll;

namespace {

constexpr const char* ring_llama =
    "llama:layers=1,width=24,heads=12,kv_heads=6,inner=12,sequence=24,batch=1,vocabulary=12";

/// s positions of one sample, width h with a heads, g of them of keys.
struct RingSizes {
  double s = 4096, h = 1024, a = 8, g = 4;
};

std::string ring_model(const RingSizes& of) {
  const auto text = [](double number) { return std::to_string(static_cast<int>(number)); };
  return "llama:layers=2,width=" + text(of.h) + ",heads=" + text(of.a) + ",kv_heads=" + text(of.g) +
         ",inner=64,sequence=" + text(of.s) + ",batch=1,vocabulary=64";
}

std::string ring_of(std::uint32_t ranks, std::string_view more = {}) {
  return "context(ranks=" + std::to_string(ranks) + ",way=ring)" + std::string(more);
}

Problem ring_problem(const std::string& model, const std::string& spec, std::uint32_t micro_batches = 1) {
  return problem_on(model, "h100_sxm_8", micro_batches, spec);
}

std::string ring_refusal(const std::string& model, const std::string& spec) {
  try {
    ring_problem(model, spec);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

const Stage& attention_stage(const Problem& problem) {
  const auto found = std::ranges::find(problem.chain->stages, "layer1.attention", &Stage::name);
  REQUIRE(found != problem.chain->stages.end());
  return *found;
}

/// By the data sheet's rates: the longer of operations at 989.4 TFLOPS and bytes at 3.35 TBps, and a launch of 3 us; a
/// hop has 2 us and 374 GBps.
struct BlockTimes {
  double forward, backward, merge, merge_back, hop;

  BlockTimes(const RingSizes& of, double n) {
    const auto op = [](double flops, double bytes) { return std::max(flops / 989.4e12, bytes / 3.35e12) + 3e-6; };
    const double own = 2 * of.s * of.h / n, kv = own * of.g / of.a, sums = 4 * of.a * of.s / n;
    const double flops = 2 * of.s * of.s * of.h / (n * n);
    forward = op(flops, 2 * own + 2 * kv + sums);
    backward = op(2.5 * flops, 4 * own + 4 * kv + sums);
    merge = op(0, 3 * (own + sums));
    merge_back = op(0, 3 * (own + 2 * kv));
    hop = 2e-6 + 2 * kv / 374e9;
  }
};

/// Of the ops of a pass of the stage that are not of its ring.
double other_seconds(const Problem& problem, bool is_backward_pass) {
  double sum = 0;
  for (std::size_t o = 0; o < problem.of_ops->ops.size(); ++o) {
    const Op& op = problem.of_ops->ops[o];
    const bool is_of_it = op.name.find("layer1.attention") != std::string::npos && op.phase != Phase::update &&
                          is_backward(op.phase) == is_backward_pass;
    if (!is_of_it || runs_beside(op) || attribute_of(op, ring_key)) continue;
    sum += duration(*problem.of_ops, op, problem.platform.devices.front(), Saving::keep)->value;
  }
  return sum;
}

/// Of the rotation of the gradients of queries.
double turning_seconds(const Problem& problem) {
  const Graph& graph = *problem.of_ops;
  const auto found = std::ranges::find(graph.ops, "layer1.attention.q.rotary backward", &Op::name);
  REQUIRE(found != graph.ops.end());
  return duration(graph, *found, problem.platform.devices.front(), Saving::keep)->value;
}

}  // namespace

// Of s positions each rank has s / n; keys and values of g of a heads are 2 s h g / a numbers of 2 bytes. They go n - 1
// hops forward and again backward; their gradients n hops, the last one home.
TEST_CASE("keys and values of a ring go round in as many hops as its formulas say", "[hybrid][ring]") {
  const RingSizes of{.s = 64, .h = 64};
  for (const std::uint32_t n : {2U, 4U, 8U}) {
    CAPTURE(n);
    const Problem problem = ring_problem(ring_model(of), ring_of(n));
    std::map<bool, std::vector<std::int64_t>> hops;
    std::map<std::string, std::size_t> others;
    for (const Op& op : problem.graph.ops) {
      const auto exchange = collective_of(op);
      if (!exchange || op.phase == Phase::update) continue;
      CHECK(exchange->kind == CollectiveKind::shift);
      CHECK(exchange->axis == "context");
      CHECK(exchange->overlaps);
      hops[is_backward(op.phase)].push_back(exchanged_bytes(problem.graph, op).count);
    }
    const auto bytes = static_cast<std::int64_t>(2 * 2 * of.s * of.h * of.g / of.a) / n;
    CHECK(hops[false] == std::vector<std::int64_t>(2 * (n - 1), bytes));
    CHECK(hops[true] == std::vector<std::int64_t>(2 * (n - 1 + n), bytes));
  }
}

// The first block is there; while it runs the second one comes, and so on. A block that is not there is waited for.
TEST_CASE("a ring's forward takes the longer of a block and a hop, by hand", "[hybrid][ring]") {
  for (const RingSizes& of : {RingSizes{.s = 65536}, RingSizes{.s = 1024}, RingSizes{.s = 16384, .g = 8}}) {
    for (const std::uint32_t n : {2U, 4U, 8U}) {
      CAPTURE(n, of.s);
      const Problem problem = ring_problem(ring_model(of), ring_of(n, "|rotor"));
      const BlockTimes t(of, n);
      const double middle = (n - 2) * std::max(t.forward + t.merge, t.hop);
      const double ring = std::max(t.forward, t.hop) + middle + t.forward + t.merge;
      CHECK(attention_stage(problem).forward.value == Approx(other_seconds(problem, false) + ring).epsilon(1e-6));
    }
  }
}

// Where blocks take longer than two hops, only the last hop of the gradients is waited for. Where hops take longer than
// two blocks and merges, all 2 n - 1 of them follow each other, and the last merge stands before the last one. Turning
// back the gradients of queries, which are there, hides some of the last hop.
TEST_CASE("a ring's backward takes its blocks or its hops, by hand", "[hybrid][ring]") {
  for (const std::uint32_t n : {2U, 4U, 8U}) {
    CAPTURE(n);
    for (const RingSizes& of : {RingSizes{.s = 131072}, RingSizes{.s = 512, .h = 262144, .g = 8}}) {
      const BlockTimes t(of, n);
      const bool waits_for_hops = of.h > 1024;
      REQUIRE((waits_for_hops ? t.hop > t.backward + t.merge_back : t.backward > 2 * t.hop));
      const Problem problem = ring_problem(ring_model(of), ring_of(n, "|rotor"));
      const double last = std::max(t.hop - turning_seconds(problem), 0.0);
      const double ring =
          waits_for_hops ? 2 * (n - 1) * t.hop + t.merge_back + last : n * t.backward + (n - 1) * t.merge_back + last;
      CHECK(attention_stage(problem).backward.value == Approx(other_seconds(problem, true) + ring).epsilon(1e-9));
    }
  }
}

// X: bytes of a rank's positions. A block of keys and values of all heads is 2 X. Beside what stays for the backward
// there are, while a block is computed: two blocks that came, what it makes, and not yet the stage's output of X. With
// gathered keys and values there are all of these. Backward: two blocks, what has come of their gradients and what the
// block makes of them, 2 X each, its gradient of queries, the sum of these, and that of what was mixed; not yet the
// gradient of the stage's input.
TEST_CASE("a ring has two blocks of keys and values beside its own, by hand", "[hybrid][ring]") {
  const RingSizes of{.s = 4096, .h = 256, .a = 2, .g = 2};
  for (const std::uint32_t n : {4U, 8U}) {
    CAPTURE(n);
    const auto x = static_cast<std::int64_t>(2 * of.s * of.h) / n,
               sums = static_cast<std::int64_t>(4 * of.a * of.s) / n;
    const Problem ring = ring_problem(ring_model(of), ring_of(n, "|rotor"));
    const Problem gathered = ring_problem(ring_model(of), "context(ranks=" + std::to_string(n) + ")|rotor");
    CHECK(attention_stage(ring).forward_workspace == Bytes{4 * x + sums});
    CHECK(attention_stage(gathered).forward_workspace == Bytes{(2 * n - 1) * x});
    CHECK(attention_stage(ring).backward_workspace == Bytes{10 * x});
    CHECK(attention_stage(gathered).backward_workspace == Bytes{(4 * n + 1) * x});
    CHECK(attention_stage(ring).saved == attention_stage(gathered).saved);
  }
}

// Sums of gradients begin later on a chain, whatever the way: behind a stage. A ring adds nothing to that.
TEST_CASE("the ring of a chain's stage takes what that of its graph does", "[hybrid][ring]") {
  const std::string model = ring_model({.s = 8192});
  const auto excess = [&](const std::string& spec) {
    const Plan graph = judged_plan(ring_problem(model, spec), spec),
               chain = judged_plan(ring_problem(model, spec + "|rotor"), spec + "|rotor");
    return (chain.makespan - graph.makespan).value;
  };
  for (const std::string n : {"2", "8"}) {
    const double of_ring = excess("context(way=ring,ranks=" + n + ")"), of_gathers = excess("context(ranks=" + n + ")");
    CAPTURE(n, of_ring, of_gathers);
    CHECK(of_ring >= -1e-12);
    CHECK(of_ring <= of_gathers + 1e-12);
  }
}

TEST_CASE("what ranks of a ring compute is what one device computes", "[hybrid][ring]") {
  const std::string models[] = {
      ring_llama, std::string(ring_llama) + ",experts=2",
      "llama:layers=1,width=24,heads=12,kv_rank=4,q_rank=4,inner=12,sequence=24,batch=1,vocabulary=12",
      "gpt2:layers=1,width=12,heads=6,sequence=24,positions=24,batch=1,vocabulary=12",
      "bert:layers=1,width=12,heads=6,inner=12,sequence=24,positions=24,batch=1,vocabulary=12"};
  std::size_t compared = 0;
  for (const std::string& model : models) {
    const GradientsOfRanks gradients(model);
    for (const std::string& spec :
         {ring_of(2), ring_of(3), ring_of(4), ring_of(2, "|megatron(tensor=3)"),
          ring_of(4, "|megatron(tensor=2,sequence=yes)"), "recompute_ops(ops=flash)|" + ring_of(4)}) {
      compared += gradients.check(problem_on(model, "h100_sxm_8", 1, spec, Optimizer::none), spec);
    }
  }
  CHECK(compared > 1000);
}

TEST_CASE("ring attention works with other strategies", "[hybrid][ring][eleventh-2]") {
  const std::string model = ring_model({.s = 64, .h = 64});
  for (const std::string& spec :
       {ring_of(8), ring_of(4, "|greedy_recompute"), ring_of(4, "|snapshot"), ring_of(8, "|offload_greedy"),
        ring_of(2, "|megatron(tensor=2)|1f1b(stages=2)|rotor"),
        ring_of(2, "|megatron(tensor=2,sequence=yes)|zero1(ranks=2)"),
        ring_of(2, "|zero3(ranks=2)|interleaved(stages=2)|selective"),
        ring_of(4, "|data_parallel(ranks=2)|rotor|offload_greedy"), ring_of(4, "|zero3(ranks=2)"),
        "recompute_ops(ops=flash)|" + ring_of(4, "|1f1b(stages=2)"), ring_of(4, "|zb_h1(stages=2)")}) {
    CAPTURE(spec);
    judged_plan(ring_problem(model, spec, 4), spec);
  }
}

TEST_CASE("a budget makes planners run blocks of a ring again", "[hybrid][ring]") {
  const std::string model = ring_model({.s = 4096, .h = 256});
  for (const char* saver : {"rotor", "greedy_recompute", "snapshot"}) {
    CAPTURE(saver);
    const std::string spec = ring_of(4, "|" + std::string(saver));
    const Problem problem = ring_problem(model, spec);
    const Plan free = judged_plan(problem, spec);
    const Plan tight = judged_plan(problem, spec, Bytes{free.peak.count * 9 / 10});
    CHECK(tight.peak.count <= free.peak.count * 9 / 10);
    CHECK(tight.makespan >= free.makespan);
  }
}

TEST_CASE("check_split finds what is wrong with a ring", "[hybrid][ring]") {
  const Graph whole = std::get<Graph>(synthetic_model(ring_llama));
  const Problem problem = problem_on(std::string(ring_llama), "h100_sxm_8", 1, ring_of(4), Optimizer::none);
  Graph rank = problem.graph;
  const auto found = [&] {
    const std::vector<std::string> wrong = check_split(whole, rank, *problem.mesh);
    return wrong.empty() ? std::string("nothing") : wrong.front();
  };
  const auto op = [&](std::string_view name) -> Op& { return *std::ranges::find(rank.ops, name, &Op::name); };
  CHECK(found() == "nothing");
  SECTION("a block reads the keys of another one") {
    op("layer0.attention.flash (block 2)").inputs[1] = op("layer0.attention.flash (block 1)").inputs[1];
    CHECK(found() ==
          "'layer0.attention.flash (block 2)' reads 'block 1 of layer0.attention.k.rotary.out', which is not block 2");
  }
  SECTION("a merge is left out") {
    Op& last = op("layer0.attention.flash (block 3)");
    last.outputs = op("layer0.attention.flash (merge 3)").outputs;
    std::erase_if(rank.ops, [](const Op& o) { return o.name == "layer0.attention.flash (merge 3)"; });
    CHECK(found() ==
          "'layer0.attention.out' reads 'layer0.attention.mixed', which is another rank's or not all of its blocks");
  }
  SECTION("a block is merged twice") {
    op("layer0.attention.flash (merge 2)").inputs[1] = op("layer0.attention.flash (merge 1)").inputs[1];
    CHECK(found() ==
          "'layer0.attention.flash (merge 2)' adds 'block 1 of layer0.attention.mixed' to other blocks than its "
          "own");
  }
  SECTION("gradients do not come home") {
    for (Op& each : rank.ops) {
      for (TensorId& t : each.inputs) {
        if (each.name.find("k.rotary backward") == std::string::npos) continue;
        t = op("layer0.attention.flash backward (merge 3)").outputs[1];
      }
    }
    CHECK(found().ends_with("which is another rank's or not all of its blocks"));
  }
  SECTION("a block has too much work") {
    op("layer0.attention.flash (block 1)").flops = Flops{4 * op("layer0.attention.flash (block 0)").flops->count};
    CHECK(found() == "'layer0.attention.flash (block 1)' has not 1/16 of the work");
  }
}

TEST_CASE("attentions that cannot run in equal blocks are refused", "[hybrid][ring]") {
  CHECK(ring_refusal("transformer:layers=1,width=32,heads=4,sequence=16,vocabulary=16,view=graph", ring_of(2)) ==
        "context: 'layer0.attention.score' makes no sums of a softmax, as fused attention does: blocks are merged by "
        "them; "
        "way=all_gather needs none");
  CHECK(
      ring_refusal(std::string(ring_llama) + ",window=8", ring_of(2)) ==
      "context: 'layer0.attention.flash' has not the work of all its pairs of queries and keys, as with a window: its "
      "blocks of keys would not have the same work; way=all_gather needs no blocks");
  CHECK(ring_refusal(ring_llama, ring_of(8)) ==
        "context: 'layer0.attention.flash' is causal: each of 8 ranks takes two pieces of its positions, one from "
        "either end, and 16 do not divide 24 positions");
}
