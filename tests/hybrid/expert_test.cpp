// Expert parallelism: bytes, work and times by hand, and its place among other strategies.

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "sim/core/collective_op.h"
#include "sim/core/op_attribute.h"
#include "sim/io/input_error.h"
#include "strategies/compose/plan.h"
#include "tests/hybrid/judged_plan.h"
#include "traces/trace_file.h"

using namespace plimsoll;

namespace {

struct Mixture {
  std::int64_t layers = 2, w = 64, f = 32, s = 16, b = 2, x = 8, k = 2, shared = 0;
};

std::string mixture_graph(const Mixture& of) {
  return "llama:layers=" + std::to_string(of.layers) + ",width=" + std::to_string(of.w) +
         ",heads=8,kv_heads=4,inner=" + std::to_string(of.f) + ",sequence=" + std::to_string(of.s) +
         ",batch=" + std::to_string(of.b) + ",vocabulary=64,experts=" + std::to_string(of.x) +
         ",top_k=" + std::to_string(of.k) + (of.shared > 0 ? ",shared=" + std::to_string(of.shared) : std::string());
}

Problem mixture_problem(const std::string& trace, std::string_view spec, Optimizer optimizer = Optimizer::adam) {
  return problem_on(trace, "h100_sxm_8", 8, spec, optimizer);
}

std::vector<const Op*> exchanges_of(const Graph& graph, CollectiveKind kind, std::string_view axis) {
  std::vector<const Op*> found;
  for (const Op& op : graph.ops) {
    const auto what = collective_of(op);
    if (what && what->kind == kind && what->axis == axis) found.push_back(&op);
  }
  return found;
}

bool is_of_experts(const std::string& name) {
  return name.find(".experts.") != std::string::npos;
}

std::string mixture_refusal(const std::string& trace, std::string_view spec) {
  try {
    mixture_problem(trace, spec);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

/// By the name that ops of all ranks have.
std::map<std::string, const Op*> ops_by_name(const Graph& graph) {
  std::map<std::string, const Op*> found;
  for (const Op& op : graph.ops) found[op.name] = &op;
  return found;
}

}  // namespace

// A layer's tokens have k rows of w numbers of 2 bytes: to their experts, back, and the same for both gradients.
TEST_CASE("a layer of experts exchanges its rows four times", "[hybrid][expert]") {
  const Mixture of;
  const std::int64_t rows = 2 * of.b * of.s * of.k * of.w;
  for (const int n : {2, 4, 8}) {
    for (const int percent : {100, 150, 250}) {
      CAPTURE(n, percent);
      const std::string spec =
          "expert(ranks=" + std::to_string(n) + ",imbalance=" + std::to_string(percent / 100.0) + ")";
      const Problem problem = mixture_problem(mixture_graph(of), spec);
      CHECK(problem.micro_batches == 8U / static_cast<unsigned>(n));
      const std::vector<const Op*> all = exchanges_of(problem.graph, CollectiveKind::all_to_all, "expert");
      REQUIRE(all.size() == 4 * static_cast<std::size_t>(of.layers));
      std::int64_t forward = 0, backward = 0;
      for (const Op* op : all) {
        CHECK(exchanged_bytes(problem.graph, *op).count == rows * percent / 100);
        (op->phase == Phase::forward ? forward : backward) += 1;
        // The rank with the most rows has them only where its experts work.
        const std::int64_t given = problem.graph[op->inputs.front()].bytes.count,
                           got = problem.graph[op->outputs.front()].bytes.count;
        CHECK(std::min(given, got) == rows);
        CHECK(std::max(given, got) == rows * percent / 100);
      }
      CHECK(forward == 2 * of.layers);
      CHECK(backward == 2 * of.layers);
    }
  }
}

// Experts are three products of w f numbers each; all else is whole on every rank. Adam has 12 bytes a number here.
TEST_CASE("a rank has its share of the experts and sums all other gradients", "[hybrid][expert]") {
  const Mixture of{.shared = 1};
  const std::int64_t experts = of.layers * of.x * 3 * of.w * of.f;
  const Problem plain = mixture_problem(mixture_graph(of), "store_all");
  const auto numbers = [](const Problem& problem, TensorKind kind) {
    return bytes_of_kind(problem.graph, kind).count / 2;
  };
  const std::int64_t all = numbers(plain, TensorKind::parameter);
  for (const std::int64_t n : {2, 4, 8}) {
    const Problem problem = mixture_problem(mixture_graph(of), "expert(buckets=off,ranks=" + std::to_string(n) + ")");
    CHECK(numbers(problem, TensorKind::parameter) == all - experts + experts / n);
    CHECK(numbers(problem, TensorKind::parameter_gradient) == all - experts + experts / n);
    CHECK(numbers(plain, TensorKind::optimizer_state) - numbers(problem, TensorKind::optimizer_state) ==
          6 * (experts - experts / n));
    std::set<std::string> summed;
    Bytes bytes;
    for (const Op* op : exchanges_of(problem.graph, CollectiveKind::all_reduce, "expert")) {
      CHECK(summed.insert(problem.graph[op->inputs.front()].name).second);
      CHECK_FALSE(is_of_experts(op->name));
      bytes += exchanged_bytes(problem.graph, *op);
    }
    CHECK(bytes.count == 2 * (all - experts));
  }
}

TEST_CASE("ops on rows of experts read these alone, and have the work of the rank with the most", "[hybrid][expert]") {
  const Mixture of{.shared = 1};
  const Problem plain = mixture_problem(mixture_graph(of), "store_all", Optimizer::none);
  for (const double imbalance : {1.0, 1.25, 2.0}) {
    const Problem problem = mixture_problem(
        mixture_graph(of), "expert(ranks=4,imbalance=" + std::to_string(imbalance) + ")", Optimizer::none);
    const auto before = ops_by_name(plain.graph), after = ops_by_name(problem.graph);
    std::set<TensorId> of_rows;
    std::size_t working = 0;
    for (const auto& [name, op] : before) {
      REQUIRE(after.contains(name));
      const bool works = name.find("mlp.up") != std::string::npos || name.find("mlp.down") != std::string::npos ||
                         name.find("mlp.silu") != std::string::npos || name.find("mlp.mul") != std::string::npos;
      CHECK(after.at(name)->flops->count == Approx(op->flops->count * (works ? imbalance : 1)));
      if (!works) CHECK(after.at(name)->bytes_moved == op->bytes_moved);
      working += works ? 1 : 0;
    }
    CHECK(working == 2 * (4 + 8));
    // Each value is read on one side of an exchange only.
    const auto side = [&](const Op& op) {
      return op.name.find("mlp.up") != std::string::npos || op.name.find("mlp.down") != std::string::npos ||
             op.name.find("mlp.silu") != std::string::npos || op.name.find("mlp.mul") != std::string::npos;
    };
    std::map<TensorId, bool> made_inside;
    for (const Op& op : problem.graph.ops) {
      const auto what = collective_of(op);
      const bool exchanges = what && what->kind == CollectiveKind::all_to_all;
      for (const TensorId t : op.inputs) {
        if (exchanges || what || !made_inside.contains(t)) continue;
        CAPTURE(op.name, problem.graph[t].name);
        CHECK(made_inside.at(t) == side(op));
      }
      for (const TensorId t : op.outputs) {
        if (problem.graph[t].kind == TensorKind::parameter_gradient) continue;
        made_inside[t] = exchanges ? !made_inside.at(op.inputs.front()) : side(op);
      }
    }
  }
}

// By the data sheet's rates, as everywhere: the longer of operations and bytes, and a launch. An exchange hands a share
// to each of the other ranks: n - 1 hops of 2 us and 374 GBps.
TEST_CASE("the experts of a layer take their time by hand", "[hybrid][expert]") {
  const Mixture of{.w = 1024, .f = 2048, .s = 2048, .b = 1};
  for (const double n : {2.0, 8.0}) {
    for (const double imbalance : {1.0, 1.5}) {
      CAPTURE(n, imbalance);
      const std::string experts =
          "expert(ranks=" + std::to_string(static_cast<int>(n)) + ",imbalance=" + std::to_string(imbalance) + ")|rotor";
      const std::string replicas = "data_parallel(ranks=" + std::to_string(static_cast<int>(n)) + ")|rotor";
      const auto forward = [&](const std::string& spec) {
        const Problem problem = mixture_problem(mixture_graph(of), spec);
        for (const Stage& stage : problem.chain->stages) {
          if (stage.name == "layer1.mlp") return stage.forward.value;
        }
        return 0.0;
      };
      const double rows = 2048.0 * 2, w = 1024, f = 2048, count = 8;
      const auto op = [](double flops, double numbers) {
        return std::max(flops / 989.4e12, 2 * numbers / 3.35e12) + 3e-6;
      };
      const auto products = [&](double rows_here, double experts_here) {
        return op(4 * rows_here * w * f, rows_here * w + experts_here * w * 2 * f + rows_here * 2 * f) +
               op(0, 2 * rows_here * f) + op(0, 3 * rows_here * f) +
               op(2 * rows_here * f * w, rows_here * f + experts_here * f * w + rows_here * w);
      };
      const double exchange = (n - 1) * (2e-6 + 2 * rows * imbalance * w / n / 374e9);
      // silu and mul state their bytes, which grow with all that they read and make.
      CHECK(forward(experts) - forward(replicas) ==
            Approx(products(imbalance * rows, count / n) - products(rows, count) + 2 * exchange).epsilon(1e-3));
    }
  }
}

namespace {

/// Rows of the rank with the most in a layer, from what its ops state.
std::int64_t most_rows(const Graph& graph, const std::string& layer, std::size_t ranks) {
  for (const Op& op : graph.ops) {
    const auto text = attribute_of(op, "expert_rows");
    if (!text || !op.name.starts_with(layer)) continue;
    std::vector<std::int64_t> of_rank(ranks);
    const std::vector<std::string_view> words = words_of(*text);
    for (std::size_t i = 0; i < words.size(); ++i)
      of_rank[i * ranks / words.size()] += std::stoll(std::string(words[i]));
    return std::ranges::max(of_rank);
  }
  return 0;
}

}  // namespace

// Positions of the rank with the most rows: of each position's k rows of b samples, in whole positions.
TEST_CASE("ranks wait for the one whose experts have the most rows, layer by layer", "[hybrid][expert]") {
  const Mixture of{.layers = 3, .s = 128};
  const std::string trace = mixture_graph(of) + ",skew=0.8,seed=5";
  const Graph graph = std::get<Graph>(load_trace(trace).model);
  for (const std::size_t n : {2, 4, 8}) {
    for (const double imbalance : {1.0, 1.5}) {
      const Problem problem =
          mixture_problem(trace, "expert(ranks=" + std::to_string(n) + ",imbalance=" + std::to_string(imbalance) + ")");
      std::set<std::int64_t> extents;
      for (const Op* op : exchanges_of(problem.graph, CollectiveKind::all_to_all, "expert")) {
        const std::string layer = "layer" + std::to_string((op->stage - 1) / 2) + ".";
        CAPTURE(n, imbalance, layer, op->name);
        const double mean = static_cast<double>(of.b * of.s * of.k) / static_cast<double>(n),
                     times = imbalance * static_cast<double>(most_rows(graph, layer, n)) / mean;
        const auto positions = static_cast<std::int64_t>(std::ceil(static_cast<double>(of.s) * times));
        CHECK(exchanged_bytes(problem.graph, *op).count == 2 * of.b * positions * of.k * of.w);
        extents.insert(positions);
      }
      CHECK((extents.size() > 1) == (n < 8));  // layers differ, but where each rank has one expert
    }
  }
}

// Padded, experts have equal rows; else the rank with the most has its experts' rows, as they state them.
TEST_CASE("experts with a capacity exchange the rows that are left", "[hybrid][expert]") {
  const Mixture of{.layers = 3, .s = 128};
  const std::int64_t mean = of.b * of.s * of.k / of.x;
  const std::string trace = mixture_graph(of) + ",skew=0.8,seed=5,capacity=1.25";
  for (const std::size_t n : {2, 4, 8}) {
    const std::string spec = "expert(ranks=" + std::to_string(n) + ")";
    const Problem padded = mixture_problem(trace + ",padded=yes", spec);
    for (const Op* op : exchanges_of(padded.graph, CollectiveKind::all_to_all, "expert")) {
      CAPTURE(n, op->name);
      CHECK(exchanged_bytes(padded.graph, *op).count == 2 * of.x * (5 * mean / 4) * of.w);
    }
    const Problem dropped = mixture_problem(trace, spec);
    const Graph graph = std::get<Graph>(load_trace(trace).model);
    for (const Op* op : exchanges_of(dropped.graph, CollectiveKind::all_to_all, "expert")) {
      const std::string layer = "layer" + std::to_string((op->stage - 1) / 2) + ".";
      CAPTURE(n, layer, op->name);
      const std::int64_t most = most_rows(graph, layer, n) * static_cast<std::int64_t>(n);
      CHECK(std::abs(exchanged_bytes(dropped.graph, *op).count - 2 * most * of.w) <= 2 * of.w);
    }
  }
  for (const char* spec : {"expert(ranks=4)", "megatron(tensor=2,sequence=yes)|expert(ranks=2)|zero1(ranks=2)",
                           "context(ranks=2)|expert(ranks=2)|1f1b(stages=2)|rotor"}) {
    CAPTURE(spec);
    judged_plan(mixture_problem(trace, spec), spec);
  }
}

TEST_CASE("more skew of experts costs ranks time, one rank none", "[hybrid][expert]") {
  const std::string trace = mixture_graph({.w = 256, .f = 512, .s = 512, .b = 1});
  const auto makespan = [&](const std::string& skew, const char* spec) {
    return judged_plan(mixture_problem(trace + ",skew=" + skew, spec), spec).makespan;
  };
  Seconds before;
  for (const char* skew : {"0", "0.5", "1", "2"}) {
    const Seconds time = makespan(skew, "expert");
    CHECK(time > before);
    before = time;
    CHECK(makespan(skew, "store_all") == makespan("0", "store_all"));
  }
}

TEST_CASE("one rank with all experts trains plainly", "[hybrid][expert]") {
  const Problem plain = mixture_problem(mixture_graph({}), "store_all"),
                alone = mixture_problem(mixture_graph({}), "expert(ranks=1,imbalance=3)");
  CHECK(alone.graph.ops.size() == plain.graph.ops.size());
  const Plan one = judged_plan(alone, "expert(ranks=1)"), other = judged_plan(plain, "store_all");
  CHECK(one.peak == other.peak);
  CHECK(one.makespan.value == Approx(other.makespan.value).epsilon(1e-12));
}

TEST_CASE("expert parallelism works with other strategies", "[hybrid][expert]") {
  for (const char* spec : {"expert(ranks=4)", "expert(ranks=4,imbalance=1.3)|greedy_recompute",
                           "megatron(tensor=2)|expert(ranks=2)|1f1b(stages=2)|rotor",
                           "megatron(tensor=2,sequence=yes)|expert(ranks=2)|zero1(ranks=2)",
                           "context(ranks=2)|expert(ranks=2)|zero3(ranks=2)",
                           "context(ranks=2,way=all_to_all)|megatron(tensor=2)|expert(ranks=2,overlap=no)",
                           "expert(ranks=2)|data_parallel(ranks=2)|interleaved(stages=2)|selective",
                           "expert(ranks=4)|zero2(ranks=2)|offload_greedy", "expert(ranks=4)|zb_h1(stages=2)"}) {
    CAPTURE(spec);
    judged_plan(mixture_problem(mixture_graph({.layers = 3}), spec), spec);
  }
}

// More ranks keep less, and a rank with more tokens takes longer and keeps more.
TEST_CASE("experts shared out keep less, and imbalance costs time and memory", "[hybrid][expert]") {
  const std::string trace = mixture_graph({.w = 256, .f = 512, .s = 512, .b = 1});
  std::optional<Plan> before;
  for (const int n : {1, 2, 4, 8}) {
    const std::string spec = "expert(ranks=" + std::to_string(n) + ")";
    Plan made = judged_plan(mixture_problem(trace, spec), spec);
    if (before) CHECK(made.peak < before->peak);
    before = std::move(made);
  }
  Seconds time;
  Bytes peak;
  for (const char* spec : {"expert(imbalance=1)", "expert(imbalance=1.2)", "expert(imbalance=2)"}) {
    const Plan made = judged_plan(mixture_problem(trace, spec), spec);
    CHECK(made.makespan > time);
    CHECK(made.peak >= peak);
    time = made.makespan;
    peak = made.peak;
  }
}

TEST_CASE("experts that cannot be shared out are refused with the numbers", "[hybrid][expert]") {
  CHECK(mixture_refusal(mixture_graph({.x = 6}), "expert(ranks=4)") ==
        "expert: 'layer0.mlp.up' has 6 experts, which 4 ranks do not divide; 3 or 6 would");
  CHECK(mixture_refusal(mixture_graph({.x = 6}), "expert(ranks=8)") ==
        "expert: 'layer0.mlp.up' has 6 experts, which 8 ranks do not divide; 6 would");
  CHECK(mixture_refusal("transformer:layers=2,view=graph", "expert(ranks=2)") ==
        "expert: no op of 'transformer:layers=2,view=graph' has a loop over experts ('x') that only its parameters "
        "have: there are none to share out");
  CHECK(mixture_refusal("transformer:layers=2", "expert(ranks=2)") ==
        "expert: 'transformer:layers=2' is a chain of stages, whose operators are not known: give a graph, such as "
        "transformer:view=graph");
  CHECK(mixture_refusal(mixture_graph({}), "data_parallel(ranks=2)|expert(ranks=2)") ==
        "expert: it stands before what trains replicas: all that they sum is known then");
  CHECK(mixture_refusal(mixture_graph({}), "expert(ranks=2)|megatron(tensor=2)") ==
        "megatron: it cuts operators, and stands before what trains several replicas of them");
  CHECK(mixture_refusal(mixture_graph({.x = 3}), "expert(ranks=3)") ==
        "expert: 3 ranks cannot share out 8 micro-batches equally; give a multiple of 3");
  CHECK(mixture_refusal(mixture_graph({.x = 16}), "expert(ranks=16)") ==
        "expert: 16 ranks, but 'h100_sxm_8' has 8 devices");
}
