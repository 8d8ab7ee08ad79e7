// Context parallelism: bytes and times by hand, gradients by numbers, and its place among other strategies.

#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "platforms/platform_file.h"
#include "sim/core/collective_op.h"
#include "sim/core/names.h"
#include "sim/io/input_error.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "strategies/compose/transformed.h"
#include "tests/hybrid/gradients_of_ranks.h"
#include "tests/hybrid/judged_plan.h"
#include "traces/models/synthetic.h"
#include "traces/trace_file.h"

using namespace plimsoll;

namespace {

struct Sequence {
  std::int64_t layers = 2, h = 64, a = 8, s = 16, b = 2, v = 64;
};

std::string sequence_graph(const Sequence& of, std::string_view more = {}) {
  return "transformer:layers=" + std::to_string(of.layers) + ",width=" + std::to_string(of.h) +
         ",heads=" + std::to_string(of.a) + ",sequence=" + std::to_string(of.s) + ",batch=" + std::to_string(of.b) +
         ",vocabulary=" + std::to_string(of.v) + ",view=graph" + std::string(more);
}

constexpr const char* small_llama =
    "llama:layers=1,width=24,heads=12,kv_heads=6,inner=12,sequence=12,batch=1,vocabulary=12";

Problem context_problem(const std::string& trace, std::string_view spec, std::uint32_t micro_batches = 1,
                        Optimizer optimizer = Optimizer::adam) {
  return problem_on(trace, "h100_sxm_8", micro_batches, spec, optimizer);
}

/// Bytes by kind of collective, forward and backward of one layer: of four layers less those of two, halved.
std::map<std::string, std::int64_t> exchanged_by_layer(Sequence of, std::string_view spec, Phase phase) {
  std::map<std::string, std::int64_t> bytes;
  for (const std::int64_t layers : {4, 2}) {
    of.layers = layers;
    const Problem problem = context_problem(sequence_graph(of), spec);
    for (const Op& op : problem.graph.ops) {
      const auto what = collective_of(op);
      if (!what || op.phase != phase) continue;
      const std::int64_t count = exchanged_bytes(problem.graph, op).count / 2;
      bytes[std::string(written(what->kind))] += layers == 4 ? count : -count;
    }
  }
  std::erase_if(bytes, [](const auto& of_kind) { return of_kind.second == 0; });
  return bytes;
}

/// What the forward of the first layer leaves for the backward.
std::int64_t kept_by_first_layer(const Graph& graph) {
  std::map<StorageId, std::int64_t> kept;
  std::set<StorageId> made;
  for (const Op& op : graph.ops) {
    for (const TensorId t : op.outputs) {
      const bool is_of_layer = graph[t].name.find("layer0.") != std::string::npos;
      if (op.phase == Phase::forward && is_of_layer) made.insert(graph[t].storage);
    }
    for (const TensorId t : op.inputs) {
      const bool is_kept = op.phase == Phase::backward && made.contains(graph[t].storage);
      if (is_kept) kept[graph[t].storage] = graph[t].bytes.count;
    }
  }
  std::int64_t sum = 0;
  for (const auto& [storage, bytes] : kept) sum += bytes;
  return sum;
}

std::string context_refusal(std::variant<Chain, Graph> model, std::string_view spec, std::uint32_t micro_batches = 1) {
  try {
    problem_on(std::move(model), "h100_sxm_8", micro_batches, spec);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

std::string context_refusal(const std::string& trace, std::string_view spec, std::uint32_t micro_batches = 1) {
  return context_refusal(synthetic_model(trace), spec, micro_batches);
}

using Exchanged = std::map<std::string, std::int64_t>;

}  // namespace

// Of a layer only its attention exchanges, values of sbh numbers of 2 bytes. Gathered: keys and values, in the backward
// again, where the gradients of both are summed and scattered. Exchanged: queries, keys, values and what is mixed of
// them; in the backward the gradients of these. Each rank has a share of what is exchanged.
TEST_CASE("a layer shared out by positions exchanges what its formulas say", "[hybrid][context]") {
  const Sequence of;
  const std::int64_t value = 2 * of.s * of.b * of.h;
  for (const std::int64_t n : {2, 4, 8}) {
    CAPTURE(n);
    const std::string ranks = "context(ranks=" + std::to_string(n);
    CHECK(exchanged_by_layer(of, ranks + ",way=all_gather)", Phase::forward) == Exchanged{{"all_gather", 2 * value}});
    CHECK(exchanged_by_layer(of, ranks + ",way=all_gather)", Phase::backward) ==
          Exchanged{{"all_gather", 2 * value}, {"reduce_scatter", 2 * value}});
    CHECK(exchanged_by_layer(of, ranks + ",way=all_to_all)", Phase::forward) ==
          Exchanged{{"all_to_all", 4 * value / n}});
    CHECK(exchanged_by_layer(of, ranks + ",way=all_to_all)", Phase::backward) ==
          Exchanged{{"all_to_all", 4 * value / n}});
  }
}

// Korthikanti et al.'s sbh(34 + 5as/h) bytes, all of which have positions; with tensor parallelism 24 of the 34 and the
// scores are divided once more.
TEST_CASE("a layer shared out by positions keeps a share of everything, to the byte", "[hybrid][context]") {
  const Sequence of;
  const std::string trace = sequence_graph(of, ",dropout=yes");
  const std::int64_t sbh = of.s * of.b * of.h, scores = of.a * of.s * of.s * of.b;
  for (const std::int64_t n : {1, 2, 4, 8}) {
    CAPTURE(n);
    const std::string ranks = "context(ranks=" + std::to_string(n);
    for (const char* way : {"all_gather", "all_to_all"}) {
      const Problem problem = context_problem(trace, ranks + ",way=" + way + ")");
      CHECK(kept_by_first_layer(problem.graph) == (34 * sbh + 5 * scores) / n);
      const Bytes positions{2 * of.s * of.h},
          whole = bytes_of_kind(std::get<Graph>(synthetic_model(trace)), TensorKind::parameter);
      CHECK(bytes_of_kind(problem.graph, TensorKind::parameter) == whole - positions + Bytes{positions.count / n});
    }
    if (n == 8) continue;
    for (const char* way : {"all_gather", "all_to_all"}) {
      const Problem both = context_problem(trace, ranks + ",way=" + way + ")|megatron(tensor=2)");
      CHECK(kept_by_first_layer(both.graph) == (10 * sbh + 24 * sbh / 2 + 5 * scores / 2) / n);
      const Problem all = context_problem(trace, ranks + ",way=" + way + ")|megatron(tensor=2,sequence=yes)");
      CHECK(kept_by_first_layer(all.graph) == (34 * sbh / 2 + 5 * scores / 2) / n);
    }
  }
}

// What a fused attention mixes is read by its own backward and by that of the product behind it, one before and one
// behind the exchange of heads: it is kept as both read it.
TEST_CASE("a fused attention that exchanges heads keeps what it mixes twice", "[hybrid][context]") {
  const Graph whole = std::get<Graph>(synthetic_model(small_llama));
  const std::int64_t kept = kept_by_first_layer(whole), mixed = 2 * 12 * 24;
  for (const std::int64_t n : {2, 3, 6}) {
    const std::string ranks = "context(ranks=" + std::to_string(n);
    CHECK(kept_by_first_layer(context_problem(small_llama, ranks + ",way=all_gather)").graph) == kept / n);
    CHECK(kept_by_first_layer(context_problem(small_llama, ranks + ",way=all_to_all)").graph) == (kept + mixed) / n);
  }
}

// By the data sheet's rates: an op takes the longer of its operations at 989.4 TFLOPS and its bytes at 3.35 TBps, and a
// launch of 3 us. A hop has 2 us and 374 GBps: a gather n - 1 of them with a share each, an exchange, too.
TEST_CASE("the forward of an attention shared out by positions takes its time by hand", "[hybrid][context]") {
  const Sequence of{.h = 1024, .a = 16, .s = 4096, .b = 1, .v = 1024};
  const auto h = static_cast<double>(of.h), s = static_cast<double>(of.s);
  const auto op = [](double flops, double numbers) { return std::max(flops / 989.4e12, 2 * numbers / 3.35e12) + 3e-6; };
  for (const double n : {1.0, 2.0, 8.0}) {
    CAPTURE(n);
    const double own = s * h / n, square = 16 * s * s / n;
    const auto hops = [&](double bytes) { return (n - 1) * (2e-6 + bytes / n / 374e9); };
    const auto layer = [&](double keys) {
      return op(0, 2 * own + 2 * h) + op(6 * own * h, own + 3 * h * h + 3 * h + 3 * own) +
             op(2 * own * s, own + keys + square) + op(0, 2 * square) + op(2 * own * s, square + keys + own) +
             op(2 * own * h, 2 * own + h * h) + op(0, 3 * own + h);
    };
    const auto forward = [&](const std::string& way) {
      const std::string spec = "context(ranks=" + std::to_string(static_cast<int>(n)) + ",way=" + way + ")|rotor";
      const Problem problem = context_problem(sequence_graph(of), spec);
      for (const Stage& stage : problem.chain->stages) {
        if (stage.name == "layer1.attention") return stage.forward.value;
      }
      return 0.0;
    };
    CHECK(forward("all_gather") == Approx(layer(s * h) + 2 * hops(2 * s * h)).epsilon(1e-6));
    CHECK(forward("all_to_all") == Approx(layer(own) + 4 * hops(2 * own)).epsilon(1e-6));
  }
}

// A table knows attentions by their sequence and heads: a rank's queries are fewer than the keys, as many as of fewer
// heads.
TEST_CASE("attentions of a share of the queries are timed by the table of fused attention", "[hybrid][context]") {
  const std::string trace = "llama:layers=1,sequence=8192";
  const auto flash = [&](std::string_view spec) {
    const std::vector<Pass> passes = parse_spec(spec, "test");
    auto made = make_problem(synthetic_model(trace), load_platform("h100_sxm_8:efficiency=h100_sxm"), {});
    const Problem problem = transformed(std::get<Problem>(std::move(made)), passes);
    std::vector<double> seconds;
    for (std::size_t o = 0; o < problem.graph.ops.size(); ++o) {
      if (problem.graph.ops[o].name.starts_with("layer0.attention.flash")) {
        seconds.push_back(duration_on(problem, id_at<OpId>(o), DeviceId{0}, Saving::keep).value);
      }
    }
    REQUIRE(seconds.size() == 2);
    return seconds;
  };
  const std::vector<double> whole = flash("store_all");
  for (const double n : {2.0, 4.0, 8.0}) {
    const std::vector<double> gathered = flash("context(way=all_gather,ranks=" + std::to_string(int(n)) + ")"),
                              exchanged = flash("context(way=all_to_all,ranks=" + std::to_string(int(n)) + ")");
    CHECK(gathered[0] == Approx(exchanged[0]));
    CHECK(gathered[1] == Approx(exchanged[1]));
    CHECK(gathered[0] >= whole[0] / n);
    CHECK(gathered[0] < 1.5 * whole[0] / n);
  }
}

TEST_CASE("what ranks that share out positions compute is what one device computes", "[hybrid][context]") {
  const std::string models[] = {
      "transformer:layers=1,width=12,heads=6,sequence=12,batch=1,vocabulary=12,view=graph,dropout=yes",
      "transformer:layers=1,decoder=1,width=12,heads=6,sequence=12,batch=1,vocabulary=12,view=graph",
      small_llama,
      std::string(small_llama) + ",experts=2",
      "gpt2:layers=1,width=12,heads=6,sequence=12,positions=12,batch=1,vocabulary=12",
      "bert:layers=1,width=12,heads=6,inner=12,sequence=12,positions=12,batch=1,vocabulary=12"};
  std::size_t compared = 0;
  for (const std::string& model : models) {
    const GradientsOfRanks gradients(model);
    for (const char* spec :
         {"context(ranks=3,way=all_gather)", "context(ranks=3,way=all_to_all)",
          "context(ranks=2,way=all_gather)|megatron(tensor=3)", "context(ranks=2,way=all_to_all)|megatron(tensor=3)",
          "context(ranks=2,way=all_gather)|megatron(tensor=3,sequence=yes)",
          "context(ranks=2,way=all_to_all)|megatron(tensor=3,sequence=yes)"}) {
      compared += gradients.check(context_problem(model, spec, 1, Optimizer::none), spec);
    }
  }
  CHECK(compared > 1000);
}

TEST_CASE("one rank that has all positions trains plainly", "[hybrid][context]") {
  for (const std::string& trace : {sequence_graph({}), std::string(small_llama)}) {
    const Problem plain = context_problem(trace, "store_all"), alone = context_problem(trace, "context(ranks=1)");
    CHECK(alone.graph.ops.size() == plain.graph.ops.size());
    const Plan one = judged_plan(alone, "context(ranks=1)"), other = judged_plan(plain, "store_all");
    CHECK(one.peak == other.peak);
    CHECK(one.makespan == other.makespan);
  }
}

TEST_CASE("context parallelism works with other strategies", "[hybrid][context]") {
  for (const char* spec : {"context(way=all_gather)", "context(way=all_to_all)|greedy_recompute",
                           "context(ranks=2)|megatron(tensor=2)|1f1b(stages=2)|rotor",
                           "context(ranks=2,way=all_to_all)|megatron(tensor=2,sequence=yes)|zero1(ranks=2)",
                           "context(ranks=2)|zero3(ranks=2)|interleaved(stages=2)|selective",
                           "context(ranks=4,way=all_to_all)|data_parallel(ranks=2)|rotor|offload_greedy",
                           "recompute_ops|context(ranks=4)|1f1b(stages=2)", "context(ranks=4)|zb_h1(stages=2)"}) {
    CAPTURE(spec);
    judged_plan(context_problem(sequence_graph({.layers = 3}), spec, 4), spec);
  }
  judged_plan(context_problem(small_llama, "context(ranks=3)|1f1b(stages=2)|rotor", 4),
              "context(ranks=3)|1f1b(stages=2)|rotor");
}

TEST_CASE("positions that cannot be shared out are refused with the numbers", "[hybrid][context]") {
  CHECK(context_refusal(sequence_graph({}), "context(ranks=3)") ==
        "context: 's' of 'embedding' has 16 in 'tokens', which 3 ranks do not divide; 2 or 4 would");
  CHECK(context_refusal(sequence_graph({.a = 4}), "context(ranks=8,way=all_to_all)") ==
        "context: 'a' of 'layer0.attention.score' has 4 in 'layer0.attention.queries', which 8 ranks do not divide; 4 "
        "would");
  CHECK(context_refusal(sequence_graph({.a = 4}), "context(ranks=4,way=all_to_all)|megatron(tensor=2)") ==
        "megatron: 'a' of 'layer0.attention.score' has 4 in 'layer0.attention.queries', which 8 ranks do not divide; 4 "
        "would");
  CHECK(context_refusal(small_llama, "context(ranks=4,way=all_gather)") ==
        "context: 'layer0.attention.flash' is causal: each of 4 ranks takes two pieces of its positions, one from "
        "either end, and 8 do not divide 12 positions");
  CHECK(context_refusal(load_trace("resnet18_ops_b8_cpu").model, "context(ranks=2)") ==
        "context: no op of 'resnet18_b8_ops' has a loop over positions of queries ('s') and of keys ('t'): there "
        "is no attention to share out");
  CHECK(context_refusal("transformer:layers=2", "context(ranks=2)") ==
        "context: 'transformer:layers=2' is a chain of stages, whose operators are not known: give a graph, such as "
        "transformer:view=graph");
  CHECK(context_refusal(sequence_graph({}), "zero1(ranks=2)|context(ranks=2)", 2) ==
        "context: it cuts operators, and stands before what trains several replicas of them");
  CHECK(context_refusal(sequence_graph({}), "megatron(tensor=2)|context(ranks=2)") ==
        "context: it cuts operators, and stands before what trains several replicas of them");
  CHECK(context_refusal(sequence_graph({}), "context(ranks=2)|data_parallel(ranks=2)|megatron(tensor=2)", 2) ==
        "megatron: it cuts operators, and stands before what trains several replicas of them");
  CHECK(context_refusal(sequence_graph({}), "context(ranks=2)|hsm2dl(devices=2)") ==
        "hsm2dl: it cuts operators, and stands before what trains several replicas of them");
  CHECK(context_refusal(sequence_graph({}), "context(ranks=16)") ==
        "context: 16 ranks, but 'h100_sxm_8' has 8 devices");
}
