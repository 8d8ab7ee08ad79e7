// data_parallel, zero1 to 3 and megatron against the closed forms of their papers, and with the strategies of others.

#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <set>

#include "platforms/platform_file.h"
#include "sim/core/collective_op.h"
#include "sim/core/names.h"
#include "sim/io/input_error.h"
#include "sim/io/text_file.h"
#include "sim/mesh/collective_times.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "strategies/transforms/recompute_ops.h"
#include "tests/hybrid/judged_plan.h"
#include "traces/models/synthetic.h"

using namespace plimsoll;

namespace {

struct Shape {
  std::int64_t layers = 2, h = 64, a = 8, s = 16, b = 4, v = 64;
};

std::string graph_of(const Shape& of, std::string_view more = {}) {
  return "transformer:layers=" + std::to_string(of.layers) + ",width=" + std::to_string(of.h) +
         ",heads=" + std::to_string(of.a) + ",sequence=" + std::to_string(of.s) + ",batch=" + std::to_string(of.b) +
         ",vocabulary=" + std::to_string(of.v) + ",view=graph" + std::string(more);
}

/// What a layer's forward leaves for the backward.
Bytes kept_by_layer(const Graph& graph, std::string_view layer) {
  std::map<StorageId, Bytes> kept;
  std::set<StorageId> made;
  for (const Op& op : graph.ops) {
    for (const TensorId t : op.outputs) {
      const bool is_of_layer = graph[t].name.find(layer) != std::string::npos;
      if (op.phase == Phase::forward && is_of_layer) made.insert(graph[t].storage);
    }
    for (const TensorId t : op.inputs) {
      const bool is_kept = op.phase == Phase::backward && made.contains(graph[t].storage);
      if (is_kept) kept[graph[t].storage] = graph[t].bytes;
    }
  }
  Bytes sum;
  for (const auto& [storage, bytes] : kept) sum += bytes;
  return sum;
}

Bytes sum_of(const Graph& graph, TensorKind kind) {
  return bytes_of_kind(graph, kind);
}

/// Bytes that collectives of a kind exchange in the forward or backward of one micro-batch.
std::map<std::string, std::int64_t> exchanged(const Graph& graph, Phase phase) {
  std::map<std::string, std::int64_t> bytes;
  for (const Op& op : graph.ops) {
    const auto what = collective_of(op);
    if (what && op.phase == phase) bytes[std::string(written(what->kind))] += exchanged_bytes(graph, op).count;
  }
  return bytes;
}

std::string refusal(const std::string& trace, const std::string& platform, std::uint32_t micro_batches,
                    std::string_view spec, Optimizer optimizer = Optimizer::adam) {
  try {
    problem_on(trace, platform, micro_batches, spec, optimizer);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

// By hand, as the paper counts layers: a decoder's layer keeps 13sbh + 5as^2b for each attention, less what the second
// one's keys and values read, and 21sbh for the MLP; that is kept once for all layers, behind the encoder's last norm.
// Products are of 4 and 12 numbers of sbh by h for each attention and MLP, scores of 2 of sbh by s; a backward has two
// for each.
TEST_CASE("a decoder's layer keeps and computes what its formulas say", "[hybrid]") {
  const Shape of;
  const std::string trace = graph_of(of, ",decoder=3,dropout=yes");
  const std::int64_t sbh = of.s * of.b * of.h, scores = of.a * of.s * of.s * of.b;
  for (const std::int64_t t : {1, 2, 4, 8}) {
    const std::string ranks = std::to_string(t);
    const Problem plain = problem_on(trace, "h100_sxm_8", 1, "megatron(tensor=" + ranks + ")");
    CHECK(kept_by_layer(plain.graph, "layer0.").count == 10 * sbh + 24 * sbh / t + 5 * scores / t);
    CHECK(kept_by_layer(plain.graph, "decoder1.").count ==
          (5 + 5 + 5) * sbh + (8 + 8 + 16) * sbh / t + 10 * scores / t);
    CHECK(kept_by_layer(plain.graph, "memory").count == 2 * sbh);
    const Problem sequence = problem_on(trace, "h100_sxm_8", 1, "megatron(tensor=" + ranks + ",sequence=yes)");
    CHECK(kept_by_layer(sequence.graph, "decoder1.").count == 47 * sbh / t + 10 * scores / t);
    CHECK(kept_by_layer(sequence.graph, "memory").count == 2 * sbh / t);
  }
  const Graph graph = std::get<Graph>(synthetic_model(trace));
  std::set<TensorId> read;
  for (const Op& op : graph.ops) read.insert(op.inputs.begin(), op.inputs.end());
  for (std::uint32_t t = 0; t < graph.tensors.size(); ++t) {
    if (graph.tensors[t].kind == TensorKind::gradient) CHECK(read.contains(TensorId{t}));
  }
  double flops = 0;
  for (const Op& op : graph.ops) {
    if (op.name.starts_with("decoder1.") && op.name.find("sum") == std::string::npos) flops += op.flops->count;
  }
  const auto product = static_cast<double>(2 * sbh * of.h), scoring = static_cast<double>(2 * sbh * of.s);
  CHECK(flops == 3 * (2 * (4 * product + 2 * scoring) + 8 * product));
}

// Korthikanti et al. 2022, equations 1 to 4: layers with dropout keep sbh(34 + 5as/h) bytes; shared out among t devices
// sbh(10 + 24/t + 5as/(ht)), and with the sequence sbh(34/t + 5as/(ht)). The layer's own input is the output of the one
// before.
TEST_CASE("what a layer of a transformer keeps is the paper's formula to the byte", "[hybrid]") {
  const Shape of;
  const std::string trace = graph_of(of, ",dropout=yes");
  const std::int64_t sbh = of.s * of.b * of.h, scores = of.a * of.s * of.s * of.b;
  for (const std::int64_t t : {1, 2, 4, 8}) {
    const std::string ranks = std::to_string(t);
    const Problem plain = problem_on(trace, "h100_sxm_8", 1, "megatron(tensor=" + ranks + ")");
    CHECK(kept_by_layer(plain.graph, "layer0.").count == 10 * sbh + 24 * sbh / t + 5 * scores / t);
    const Problem sequence = problem_on(trace, "h100_sxm_8", 1, "megatron(tensor=" + ranks + ",sequence=yes)");
    CHECK(kept_by_layer(sequence.graph, "layer0.").count == 34 * sbh / t + 5 * scores / t);
  }
}

// The same paper, table 2: with attention's core recomputed 5as/h goes. The second run of the scores, 2bhs^2
// operations, and what is bound by memory take their time in the backward.
TEST_CASE("attention's core that runs again keeps nothing, to the byte", "[hybrid][recompute]") {
  const Shape of;
  const std::string trace = graph_of(of, ",dropout=yes");
  const std::int64_t sbh = of.s * of.b * of.h;
  for (const std::int64_t t : {1, 2, 4, 8}) {
    const std::string spec = "recompute_ops|megatron(tensor=" + std::to_string(t);
    const Problem plain = problem_on(trace, "h100_sxm_8", 1, spec + ")");
    CHECK(kept_by_layer(plain.graph, "layer0.").count == 10 * sbh + 24 * sbh / t);
    const Problem sequence = problem_on(trace, "h100_sxm_8", 1, spec + ",sequence=yes)");
    CHECK(kept_by_layer(sequence.graph, "layer0.").count == 34 * sbh / t);
    judged_plan(sequence, spec + ",sequence=yes)");
  }
}

/// Of an op on the first device: what its operations or its bytes take, and a launch.
Seconds roofline(const Op& op, const Problem& problem) {
  const Device& device = problem.platform.devices.front();
  const Seconds work = *op.flops / device.peak.at(problem.graph.source.dtype),
                bytes = *op.bytes_moved / *device.memory_bandwidth;
  return std::max(work, bytes) + device.launch_overhead;
}

TEST_CASE("stages with ops that run again keep less, in pipelines and behind rotor", "[hybrid][recompute]") {
  const Shape of;
  const std::string trace = graph_of(of, ",dropout=yes");
  const std::int64_t scores = of.a * of.s * of.s * of.b;
  for (const char* behind : {"1f1b", "interleaved(chunks=2)|selective(stages=mlp)", "zero1(ranks=2)|1f1b|rotor"}) {
    const std::string spec = std::string("megatron(tensor=2)|") + behind;
    const Problem plain = problem_on(trace, "h100_sxm_8", 4, spec),
                  again = problem_on(trace, "h100_sxm_8", 4, "recompute_ops|" + spec);
    REQUIRE(plain.chain->stages.size() == again.chain->stages.size());
    for (std::size_t i = 0; i < plain.chain->stages.size(); ++i) {
      const Stage &was = plain.chain->stages[i], &is = again.chain->stages[i];
      const bool is_attention = was.name.ends_with("attention");
      CHECK((was.saved - is.saved).count == (is_attention ? 5 * scores / 2 : 0));
      CHECK(is.forward == was.forward);
      Seconds second;
      for (const Op& op : again.of_ops->ops) {
        if (op.name.starts_with("second " + was.name + ".")) second += roofline(op, again);
      }
      CHECK((second > Seconds{0}) == is_attention);
      CHECK((is.backward - was.backward).value == Approx(second.value));
    }
    judged_plan(again, "recompute_ops|" + spec);
  }
}

// Korthikanti et al. 2022, tables 3 and 5: 1.42 and 1.10 s on 8 A100; by the data sheet's rates both come out alike
// short. By kernels and collectives that others measured they are 3 and 4 % short.
TEST_CASE("the published iteration of 22 billion parameters, by a data sheet's rates and by measured kernels",
          "[hybrid][recompute]") {
  const std::string trace =
      "transformer:layers=48,width=6144,heads=64,sequence=2048,batch=4,vocabulary=51200,view=graph,dropout=yes";
  const auto ratio = [&](const char* platform, const char* spec, double published) {
    const Problem problem = problem_on(trace, platform, 1, spec);
    PlanOutcome outcome = plan(problem, parse_spec(spec, "test"), std::nullopt);
    return std::get<Plan>(outcome).makespan.value / published;
  };
  const char *full = "megatron|full_recompute", *core = "recompute_ops|megatron(sequence=yes)";
  CHECK(ratio("a100_sxm_8", full, 1.42) == Approx(0.779).epsilon(0.002));
  CHECK(ratio("a100_sxm_8", core, 1.10) == Approx(0.755).epsilon(0.002));
  CHECK(ratio("a100_sxm_8:efficiency=a100_sxm", full, 1.42) == Approx(0.970).epsilon(0.002));
  CHECK(ratio("a100_sxm_8:efficiency=a100_sxm", core, 1.10) == Approx(0.961).epsilon(0.002));
}

// Megatron-LM: two all-reduces of sbh numbers a layer in the forward, two in the backward. With the sequence shared
// out, each is a reduce-scatter and an all-gather; the backward gathers what products of weights read once more.
// Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC 2021, table
// 2: 174.6 billion parameters by ZeRO-3, 1,536 samples on 384, 768 and 1,536 A100, as many a rank as that leaves.
TEST_CASE("the published iterations of ZeRO-3 over many nodes, by rings", "[hybrid]") {
  struct Published {
    int nodes, batch;
    double teraflops;  // a GPU and second
  };
  constexpr double s = 2048, l = 96, h = 12288, v = 51200, samples = 1536;
  constexpr double flops = 96 * samples * s * l * h * h * (1 + s / (6 * h) + v / (16 * l * h));
  for (const Published& row : {Published{48, 4, 144}, Published{96, 2, 88}, Published{192, 1, 44}}) {
    CAPTURE(row.nodes);
    std::string platform = read_text_file("platforms/a100_sxm_64.yaml");
    const std::string nodes = "nodes: 8\n";
    platform.replace(platform.find(nodes), nodes.size(), "nodes: " + std::to_string(row.nodes) + "\n");
    const Shape shape{.layers = 96, .h = 12288, .a = 96, .s = 2048, .b = row.batch, .v = 51200};
    const std::vector<Pass> passes = parse_spec("zero3(prefetch=0)|full_recompute", "test");
    auto made =
        make_problem(synthetic_model(graph_of(shape, ",dtype=bf16")), parse_platform(platform, "a100.yaml"),
                     {.micro_batches = static_cast<std::uint32_t>(1536 / row.batch), .optimizer = Optimizer::adam});
    const Problem problem = transformed(std::get<Problem>(std::move(made)), passes);
    const PlanOutcome outcome = plan(problem, passes, std::nullopt);
    const double gpus = 8.0 * row.nodes;
    CHECK(flops / std::get<Plan>(outcome).makespan.value / gpus / 1e12 == Approx(row.teraflops).epsilon(0.05));
  }
}

TEST_CASE("a layer of a tensor-parallel transformer exchanges what the paper says", "[hybrid]") {
  const Shape two{.layers = 2}, four{.layers = 4};
  const std::int64_t numbers = 2 * two.s * two.b * two.h;
  const auto of_two_layers = [&](const char* spec, Phase phase) {
    auto more = exchanged(problem_on(graph_of(four), "h100_sxm_8", 1, spec).graph, phase);
    for (const auto& [kind, bytes] : exchanged(problem_on(graph_of(two), "h100_sxm_8", 1, spec).graph, phase)) {
      more[kind] -= bytes;
    }
    std::erase_if(more, [](const auto& of_kind) { return of_kind.second == 0; });  // those of the loss
    return more;
  };
  using Exchanged = std::map<std::string, std::int64_t>;
  CHECK(of_two_layers("megatron", Phase::forward) == Exchanged{{"all_reduce", 2 * 2 * numbers}});
  CHECK(of_two_layers("megatron", Phase::backward) == Exchanged{{"all_reduce", 2 * 2 * numbers}});
  CHECK(of_two_layers("megatron(sequence=yes)", Phase::forward) ==
        Exchanged{{"reduce_scatter", 2 * 2 * numbers}, {"all_gather", 2 * 2 * numbers}});
  CHECK(of_two_layers("megatron(sequence=yes)", Phase::backward) ==
        Exchanged{{"reduce_scatter", 2 * 2 * numbers}, {"all_gather", 2 * 4 * numbers}});
}

// ZeRO, figure 1: with parameters of 2 bytes, gradients of 2 and Adam's 12, a rank of d keeps 16 P bytes, 4 P + 12 P/d,
// 2 P + 14 P/d, 16 P/d.
TEST_CASE("ranks keep what ZeRO's paper says to the byte", "[hybrid]") {
  const std::string trace = graph_of({});
  const Problem whole = problem_on(trace, "h100_sxm_8", 8, "store_all");
  const std::int64_t p = sum_of(whole.graph, TensorKind::parameter).count / 2;
  const auto kept = [&](const char* spec) {
    const Problem problem = problem_on(trace, "h100_sxm_8", 8, spec);
    judged_plan(problem, spec);
    return std::array{sum_of(problem.graph, TensorKind::parameter).count,
                      sum_of(problem.graph, TensorKind::parameter_gradient).count,
                      sum_of(problem.graph, TensorKind::optimizer_state).count};
  };
  const std::int64_t d = 4;
  CHECK(kept("data_parallel(ranks=4,bucket_view=yes)") == std::array{2 * p, 2 * p, 12 * p});
  CHECK(kept("data_parallel(ranks=4,buckets=off)") == std::array{2 * p, 2 * p, 12 * p});
  // PyTorch's default copies gradients into buckets, which are counted with the states.
  CHECK(kept("data_parallel(ranks=4)") == std::array{2 * p, 2 * p, 12 * p + 2 * p});
  CHECK(kept("zero1(ranks=4)") == std::array{2 * p, 2 * p, 12 * p / d});
  CHECK(kept("zero2(ranks=4)") == std::array{2 * p, 2 * p / d, 12 * p / d});
  CHECK(kept("zero3(ranks=4)") == std::array{2 * p / d, 2 * p / d, 12 * p / d});
}

TEST_CASE("buckets are counted by who plans behind them", "[hybrid][eleventh-3]") {
  for (const std::string behind : {"", "|rotor", "|chen_sqrt", "|chen_greedy", "|revolve", "|pofo", "|offload_greedy",
                                   "|rotor|offload_greedy", "|zero_offload", "|1f1b(stages=2)|rotor"}) {
    const std::string spec = "data_parallel(ranks=2)" + behind;
    CAPTURE(spec);
    const Problem problem =
        problem_on("transformer:layers=3,width=64,heads=4,sequence=32,batch=1,vocabulary=200", "h100_sxm_8", 4, spec);
    judged_plan(problem, spec);
    const std::optional<Bytes> least = std::get<Infeasible>(plan(problem, parse_spec(spec, "test"), Bytes{1})).smallest;
    REQUIRE(least);
    CHECK(judged_plan(problem, spec, least).peak <= *least);
  }
}

// Megatron-LM: 18 bytes a parameter in bf16 with Adam, 2 of them the parameter's and 4 its main gradient's.
TEST_CASE("Megatron's main gradients are in fp32 where parameters are in bf16", "[hybrid]") {
  const auto kept = [](const std::string& dtype, const std::string& spec) {
    const std::string trace = graph_of({}) + ",dtype=" + dtype;
    const Problem problem = problem_on(trace, "h100_sxm_8", 8, spec);
    judged_plan(problem, spec);
    const std::int64_t p = sum_of(problem.graph, TensorKind::parameter).count / 2;
    const Bytes gradients = sum_of(problem.graph, TensorKind::parameter_gradient),
                states = sum_of(problem.graph, TensorKind::optimizer_state);
    return std::pair(gradients.count / p, states.count / p);
  };
  using Kept = std::pair<std::int64_t, std::int64_t>;
  CHECK(kept("bf16", "megatron(tensor=2)") == Kept{4, 12});
  CHECK(kept("bf16", "megatron(tensor=2,main_gradients=as_parameters)") == Kept{2, 12});
  CHECK(kept("fp16", "megatron(tensor=2)") == Kept{2, 12});
  CHECK(kept("fp16", "megatron(tensor=2,main_gradients=fp32)") == Kept{4, 12});
  CHECK(kept("bf16", "megatron(tensor=2)|data_parallel(ranks=2)") == Kept{4, 12});  // its buckets hold them
  CHECK(kept("bf16", "megatron(tensor=2)|data_parallel(ranks=2,bucket_view=no)") == Kept{4, 12 + 4});
}

TEST_CASE("stages of a graph in which only the last ones are trained are planned", "[hybrid]") {
  const std::string trace = graph_of({.layers = 1, .h = 32, .a = 8, .s = 16, .b = 1, .v = 32});
  const std::string spec =
      GENERATE("sparse_update|1f1b(stages=3)", "sparse_update|zb_h1(stages=2)", "sparse_update|zero3(ranks=2)|rotor",
               "sparse_update|megatron(tensor=2)|1f1b(stages=2)");
  judged_plan(problem_on(trace, "h100_sxm_8", 8, spec), spec);
  const Seconds alone = judged_plan(problem_on(trace, "h100_sxm_8", 8, "sparse_update"), "sparse_update").makespan;
  const std::string on_one = "sparse_update|1f1b(stages=1)";
  CHECK(judged_plan(problem_on(trace, "h100_sxm_8", 8, on_one), on_one).makespan.value == Approx(alone.value));
}

// Data parallelism sums 2 P bytes of gradients. ZeRO 1 and 2 scatter and gather as much; ZeRO 3 gathers parameters
// twice.
TEST_CASE("ranks exchange what ZeRO's paper says", "[hybrid]") {
  const std::string trace = graph_of({});
  const std::int64_t all = sum_of(problem_on(trace, "h100_sxm_8", 8, "store_all").graph, TensorKind::parameter).count;
  const auto of = [&](const char* spec) {
    const Graph graph = problem_on(trace, "h100_sxm_8", 8, spec).graph;
    std::map<std::string, std::int64_t> sum = exchanged(graph, Phase::forward);
    for (const Phase phase : {Phase::backward, Phase::update}) {
      for (const auto& [kind, bytes] : exchanged(graph, phase)) sum[kind] += bytes;
    }
    return sum;
  };
  using Exchanged = std::map<std::string, std::int64_t>;
  CHECK(of("data_parallel") == Exchanged{{"all_reduce", all}});
  CHECK(of("zero1") == Exchanged{{"reduce_scatter", all}, {"all_gather", all}});
  CHECK(of("zero2") == Exchanged{{"reduce_scatter", all}, {"all_gather", all}});
  const auto zero3 = of("zero3");
  CHECK(zero3.at("reduce_scatter") == all);
  // All of them for the forward; for the backward what that reads: weights and the scales of norms, no biases, shifts
  // nor tables of embeddings. In numbers of two bytes:
  const Shape shape;
  const std::int64_t in_backward = shape.layers * (12 * shape.h * shape.h + 2 * shape.h) + shape.h + shape.h * shape.v;
  CHECK(zero3.at("all_gather") == all + 2 * in_backward);
  CHECK(of("zero3(reshard_after_forward=no)").at("all_gather") == all);
}

// What the backward reads of the parameters, in numbers of two bytes: weights and the scales of norms. The last layers
// are gathered for their backward as well where nothing stays, so that less than all of it is more at the peak.
TEST_CASE("parameters that stay from the forward to the backward take their bytes", "[hybrid]") {
  const Shape shape;
  const std::int64_t in_backward = shape.layers * (12 * shape.h * shape.h + 2 * shape.h) + shape.h + shape.h * shape.v;
  const std::string trace = graph_of({});
  const char *stay = "zero3(reshard_after_forward=no)", *go = "zero3";
  const Problem problem = problem_on(trace, "h100_sxm_8", 8, stay);
  std::map<TensorId, Bytes> gathered;
  Bytes kept;
  for (const Op& op : problem.graph.ops) {
    const auto exchange = collective_of(op);
    if (exchange && exchange->kind == CollectiveKind::all_gather) {
      CHECK(op.phase == Phase::forward);
      for (const TensorId t : op.outputs) gathered[t] = problem.graph[t].bytes;
    }
    for (const TensorId t : op.inputs) {
      if (is_backward(op.phase) && gathered.contains(t)) kept += std::exchange(gathered[t], Bytes{0});
    }
  }
  CHECK(kept == Bytes{2 * in_backward});
  const Plan more = judged_plan(problem, stay), less = judged_plan(problem_on(trace, "h100_sxm_8", 8, go), go);
  CHECK(more.peak > less.peak);
  CHECK(more.peak <= less.peak + kept);
  CHECK(more.makespan <= less.makespan);
}

// FSDP2's reshard_after_forward=2 of eight ranks: four pairs. All eight gather for the forward, pairs for the backward
// what that reads, whose half a rank has kept. Gradients are scattered over all eight.
TEST_CASE("parameters that stay as shares over some ranks are gathered by these", "[hybrid]") {
  const Shape shape;
  const std::int64_t in_backward = shape.layers * (12 * shape.h * shape.h + 2 * shape.h) + shape.h + shape.h * shape.v;
  const std::string trace = graph_of({});
  const std::int64_t all = sum_of(problem_on(trace, "h100_sxm_8", 8, "store_all").graph, TensorKind::parameter).count;
  const char *pairs = "zero3(reshard_after_forward=2)", *stay = "zero3(reshard_after_forward=no)", *go = "zero3";
  const Problem problem = problem_on(trace, "h100_sxm_8", 8, pairs);
  CHECK(problem.micro_batches == 1);
  REQUIRE(problem.mesh->axes.size() == 2);
  CHECK(problem.mesh->axes[0] == Axis{"data", 4, true, CollectiveWay::nccl});
  CHECK(problem.mesh->axes[1] == Axis{"near", 2, true, CollectiveWay::nccl});
  CHECK(sum_of(problem.graph, TensorKind::parameter).count == all / 8);
  std::map<std::pair<std::string, std::string>, std::int64_t> by_axis;
  Bytes kept;
  for (const Op& op : problem.graph.ops) {
    const auto exchange = collective_of(op);
    if (exchange) {
      by_axis[{std::string(written(exchange->kind)), std::string(exchange->axis)}] +=
          exchanged_bytes(problem.graph, op).count;
    }
    if (op.kind == "share") {
      CHECK(op.phase == Phase::forward);
      for (const TensorId t : op.outputs) kept += problem.graph[t].bytes;
    }
  }
  CHECK(by_axis ==
        std::map<std::pair<std::string, std::string>, std::int64_t>{{{"all_gather", "data+near"}, all},
                                                                    {{"all_gather", "near"}, 2 * in_backward},
                                                                    {{"reduce_scatter", "data+near"}, all}});
  CHECK(kept.count == in_backward);
  const auto peak = [&](const char* spec) { return judged_plan(problem_on(trace, "h100_sxm_8", 8, spec), spec).peak; };
  CHECK(peak(go) <= peak(pairs));
  CHECK(peak(pairs) <= peak(go) + kept);
  CHECK(peak(pairs) < peak(stay));
  const Problem as_always = problem_on(trace, "h100_sxm_8", 8, "zero3(reshard_after_forward=8)");
  CHECK(as_always.mesh->axes.size() == 1);
  CHECK(exchanged(as_always.graph, Phase::backward).at("all_gather") == 2 * in_backward);
  CHECK(refusal(trace, "h100_sxm_8", 8, "zero3(reshard_after_forward=3)") ==
        "zero3: reshard_after_forward=3: must divide the 8 ranks that share parameters out");
}

// A stage of a chain keeps half of its parameters on each of two ranks, and gathers them within the pair.
TEST_CASE("stages of chains keep shares over some ranks, and gather these", "[hybrid]") {
  const std::string trace = "transformer:layers=3,width=64,heads=4,sequence=32,vocabulary=100";
  const Problem before = problem_on(trace, "h100_sxm_8", 8, "store_all");
  const Problem after = problem_on(trace, "h100_sxm_8", 8, "zero3(ranks=4,prefetch=0,reshard_after_forward=2)");
  const Problem always = problem_on(trace, "h100_sxm_8", 8, "zero3(ranks=4,prefetch=0)");
  auto times_or_why = CollectiveTimes::on(
      before.platform, Mesh{{{"data", 2, true, CollectiveWay::ring}, {"near", 2, true, CollectiveWay::ring}}});
  CollectiveTimes& times = std::get<CollectiveTimes>(times_or_why);
  constexpr std::uint32_t both[] = {0, 1};
  for (std::size_t s = 0; s < before.chain->stages.size(); ++s) {
    const Stage &plain = before.chain->stages[s], &pair = after.chain->stages[s], &all = always.chain->stages[s];
    Bytes parameters, halves;
    for (const std::uint32_t p : std::set<std::uint32_t>(plain.parameters.begin(), plain.parameters.end())) {
      const Bytes each = before.chain->parameters[p].bytes;
      parameters += each;
      halves += Bytes{(each.count + 1) / 2};
    }
    const auto gather = [&](std::span<const std::uint32_t> axes) {
      return parameters > Bytes{0} ? times.seconds(CollectiveKind::all_gather, parameters, axes).value : 0;
    };
    CHECK(pair.saved == plain.saved + halves);
    CHECK(pair.forward.value == Approx(all.forward.value).epsilon(1e-12));
    CHECK(pair.backward.value ==
          Approx(all.backward.value - gather(both) + gather(std::span(both).subspan(1))).epsilon(1e-12));
    CHECK(pair.backward_workspace == all.backward_workspace);
  }
}

// Replicas of two, each shared out among four: a share's gradients are scattered within the replica, then summed over
// the replicas.
TEST_CASE("replicas that are shared out keep ZeRO's shares and sum these", "[hybrid]") {
  const std::string trace = graph_of({});
  const Problem whole = problem_on(trace, "h100_sxm_8", 8, "store_all");
  const std::int64_t p = sum_of(whole.graph, TensorKind::parameter).count / 2;
  for (const char* spec : {"data_parallel(ranks=2)|zero3(ranks=4)", "data_parallel(ranks=2)|zero3"}) {
    const Problem problem = problem_on(trace, "h100_sxm_8", 16, spec);
    CHECK(problem.micro_batches == 2);
    REQUIRE(problem.mesh->axes.size() == 2);
    CHECK(problem.mesh->axes[0].name == "data");  // the outer one: neighbours share a replica out
    CHECK(problem.mesh->axes[1].name == "shards");
    CHECK(problem.mesh->axes[1].ranks == 4);
    CHECK(sum_of(problem.graph, TensorKind::parameter).count == 2 * p / 4);
    CHECK(sum_of(problem.graph, TensorKind::parameter_gradient).count == 2 * p / 4);
    CHECK(sum_of(problem.graph, TensorKind::optimizer_state).count == 12 * p / 4);
    CHECK(exchanged(problem.graph, Phase::update) == std::map<std::string, std::int64_t>{{"all_reduce", 2 * p / 4}});
    CHECK(exchanged(problem.graph, Phase::backward).at("reduce_scatter") == 2 * p);
    judged_plan(problem, spec);
  }
  const Problem two = problem_on(trace, "h100_sxm_8", 8, "data_parallel(ranks=2)|zero2(ranks=4)");
  CHECK(sum_of(two.graph, TensorKind::parameter_gradient).count == 2 * p / 4);
  CHECK(exchanged(two.graph, Phase::update) ==
        std::map<std::string, std::int64_t>{{"all_gather", 2 * p}, {"all_reduce", 2 * p / 4}});
  const Problem chain = problem_on("transformer:layers=2,width=64,heads=8,sequence=16,batch=4,vocabulary=64",
                                   "h100_sxm_8", 8, "data_parallel(ranks=2)|zero3(ranks=4)");
  CHECK(sum_of(chain.graph, TensorKind::parameter).count == 2 * p / 4);
  CHECK(exchanged(chain.graph, Phase::update) == std::map<std::string, std::int64_t>{{"all_reduce", 2 * p / 4}});
  judged_plan(chain, "data_parallel(ranks=2)|zero3(ranks=4)");
  const char* behind = "data_parallel(ranks=2)|zero3(ranks=2)|1f1b(stages=2)";
  judged_plan(problem_on(trace, "h100_sxm_8", 16, behind), behind);
  CHECK(refusal(trace, "h100_sxm_8", 8, "data_parallel(ranks=2)|zero3(ranks=2)|zero3(ranks=2)") ==
        "test:1:39: 'zero3' cannot follow 'zero3': both are hybrid strategies, and one part has one");
}

TEST_CASE("what a framework overlaps has its name, and means what its options mean", "[hybrid]") {
  const std::string trace = graph_of({});
  const auto asked = [&](const std::string& spec) {
    return judged_plan(problem_on(trace, "h100_sxm_8", 8, spec), spec);
  };
  for (const auto& [named, spelled] : {std::pair{"data_parallel(overlap=ddp)", "data_parallel"},
                                       {"data_parallel(overlap=megatron)", "data_parallel(overlap=no,bucket_view=yes)"},
                                       {"data_parallel(overlap=none)", "data_parallel(overlap=no)"},
                                       {"zero1(overlap=megatron)", "zero1(overlap=no)"},
                                       {"zero2(overlap=fsdp2)", "zero2"},
                                       {"zero3(overlap=fsdp2,prefetch=2)", "zero3(prefetch=2)"}}) {
    CAPTURE(named);
    const Plan one = asked(named), other = asked(spelled);
    CHECK(one.makespan == other.makespan);
    CHECK(one.peak == other.peak);
  }
  for (const auto& [spec, why] :
       {std::pair{"zero1(overlap=ddp)",
                  "zero1: overlap=ddp: PyTorch's DistributedDataParallel shares nothing out, as "
                  "data_parallel does"},
        {"zero3(overlap=megatron)",
         "zero3: overlap=megatron: Megatron's distributed optimizer shares states out, as "
         "zero1 does, and no more"},
        {"data_parallel(overlap=fsdp2)",
         "data_parallel: overlap=fsdp2: FSDP2 shares gradients out, as zero2 and zero3 "
         "do"}}) {
    CHECK(refusal(trace, "h100_sxm_8", 8, spec) == why);
  }
}

// Every gather and every sum is waited for: a graph takes the time of all its ops, and a stage of a chain that of its
// own exchanges on top.
TEST_CASE("ZeRO without overlap waits for all that it exchanges", "[hybrid]") {
  for (const char* spec :
       {"zero2(overlap=none)", "zero3(overlap=none)", "zero3(overlap=none,reshard_after_forward=2)"}) {
    CAPTURE(spec);
    const Problem problem = problem_on(graph_of({}), "h100_sxm_8", 8, spec);
    CHECK(std::ranges::none_of(problem.graph.ops, runs_beside));
    Seconds all;
    for (std::size_t o = 0; o < problem.graph.ops.size(); ++o) {
      all += duration_on(problem, id_at<OpId>(o), DeviceId{0}, Saving::keep);
    }
    CHECK(judged_plan(problem, spec).makespan.value == Approx(all.value));
  }
  const std::string trace = "transformer:layers=3,width=64,heads=4,sequence=32,vocabulary=100";
  const Problem before = problem_on(trace, "h100_sxm_8", 8, "store_all");
  const Problem after = problem_on(trace, "h100_sxm_8", 8, "zero3(ranks=4,overlap=none)");
  auto times_or_why = CollectiveTimes::on(before.platform, Mesh{{{"data", 4, true, CollectiveWay::ring}}});
  CollectiveTimes& times = std::get<CollectiveTimes>(times_or_why);
  constexpr std::uint32_t axis = 0;
  for (std::size_t s = 0; s < before.chain->stages.size(); ++s) {
    const Stage &plain = before.chain->stages[s], &shared = after.chain->stages[s];
    Bytes parameters;
    for (const std::uint32_t p : std::set<std::uint32_t>(plain.parameters.begin(), plain.parameters.end())) {
      parameters += before.chain->parameters[p].bytes;
    }
    const auto seconds = [&](CollectiveKind kind, Bytes bytes) {
      return bytes > Bytes{0} ? times.seconds(kind, bytes, std::span(&axis, 1)).value : 0;
    };
    const double gather = seconds(CollectiveKind::all_gather, parameters),
                 sum = seconds(CollectiveKind::reduce_scatter, plain.parameter_gradient.value_or(parameters));
    CHECK(shared.forward.value == Approx(plain.forward.value + gather).epsilon(1e-12));
    CHECK(shared.backward.value == Approx(plain.backward.value + gather + sum).epsilon(1e-12));
  }
}

TEST_CASE("without overlap gradients are summed when the whole backward is over", "[hybrid]") {
  for (const char* name : {"data_parallel", "zero1"}) {
    const std::string spec = name, apart = spec + "(overlap=no)";
    const Problem beside = problem_on(graph_of({}), "h100_sxm_8", 8, spec),
                  after = problem_on(graph_of({}), "h100_sxm_8", 8, apart);
    CHECK(std::ranges::none_of(after.graph.ops, runs_beside));
    CHECK(exchanged(after.graph, Phase::update) == exchanged(beside.graph, Phase::update));
    Seconds all;  // nothing runs beside anything
    for (std::size_t o = 0; o < after.graph.ops.size(); ++o) {
      all += duration_on(after, id_at<OpId>(o), DeviceId{0}, Saving::keep);
    }
    CHECK(judged_plan(after, apart).makespan.value == Approx(all.value));
    CHECK(judged_plan(beside, spec).makespan < judged_plan(after, apart).makespan);
  }
}

TEST_CASE("words and inner numbers that ranks do not divide are padded, and it is said", "[hybrid]") {
  const Shape of{.v = 60};
  const Problem plain = problem_on(graph_of({.v = 1024}), "h100_sxm_8", 1, "megatron"),
                made = problem_on(graph_of(of), "h100_sxm_8", 1, "megatron");
  CHECK(made.notes == std::vector<std::string>{"60 words are padded to 1024, a multiple of 1024, as Megatron does"});
  for (const TensorKind kind : {TensorKind::parameter, TensorKind::parameter_gradient, TensorKind::optimizer_state,
                                TensorKind::activation, TensorKind::gradient}) {
    CHECK(sum_of(made.graph, kind) == sum_of(plain.graph, kind));
  }
  const auto flops = [](const Problem& problem) {
    double sum = 0;
    for (const Op& op : problem.graph.ops) sum += op.flops ? op.flops->count : 0;
    return sum;
  };
  CHECK(flops(made) == Approx(flops(plain)));
  judged_plan(made, "megatron");
  CHECK(problem_on(graph_of({.v = 64}), "h100_sxm_8", 1, "megatron").notes.empty());
}

TEST_CASE("a loss that needs all words has them gathered, and blocks are cut all the same", "[hybrid]") {
  auto graph = std::get<Graph>(synthetic_model(graph_of({})));
  for (Op& op : graph.ops) {
    const bool exchanges = std::erase_if(op.attributes, [](const auto& a) { return a.first == "loop_reduces"; }) > 0;
    for (auto& [key, text] : op.attributes) {
      if (exchanges && key == "loop") text.replace(text.find(" v"), 2, " v!");  // as eager PyTorch's softmax
    }
  }
  const std::vector<Pass> passes = parse_spec("megatron(tensor=2)", "test");
  auto made = make_problem(graph, load_platform("h100_sxm_8"), {.optimizer = Optimizer::adam});
  const Problem problem = transformed(std::get<Problem>(std::move(made)), passes);
  CHECK(exchanged(problem.graph, Phase::forward).contains("all_gather"));
  judged_plan(problem, "megatron(tensor=2)");
}

TEST_CASE("gradients of a stage are summed in buckets", "[hybrid]") {
  const auto sums = [](const char* spec) {
    const Problem problem = problem_on(graph_of({}), "h100_sxm_8", 8, spec);
    return std::ranges::count_if(problem.graph.ops, runs_beside);
  };
  const std::ptrdiff_t parameters = 2 * (6 + 6) + 2 + 3;
  CHECK(sums("data_parallel(buckets=off)") == parameters);
  CHECK(sums("data_parallel") == 2 * 2 + 2);  // stages with parameters
}

TEST_CASE("hybrid strategies work with those of other families", "[hybrid]") {
  const std::string trace = graph_of({.layers = 3});
  for (const char* spec : {"data_parallel",
                           "zero1",
                           "zero2",
                           "zero3",
                           "megatron",
                           "megatron(sequence=yes)",
                           "zero3(prefetch=0)",
                           "megatron(tensor=2)|zero1",
                           "megatron(tensor=4,sequence=yes)|zero3",
                           "megatron(tensor=4)|interleaved|selective",
                           "zero3|rotor|offload_greedy",
                           "zero2|offload_greedy",
                           "data_parallel(ranks=4)|pardnn",
                           "data_parallel(ranks=2)|contiguous",
                           "zero1(ranks=2)|contiguous",
                           "megatron(tensor=2)|zero2(ranks=2)|1f1b|rotor",
                           "megatron(tensor=4)|1f1b|rotor",
                           "data_parallel(ranks=2)|zb_h1",
                           "zero1|greedy_recompute",
                           "megatron|offload_greedy",
                           "zero1(ranks=4)|quantize",
                           "zero3(ranks=4)|1f1b",
                           "zero3(reshard_after_forward=no)",
                           "zero3(reshard_after_forward=no,prefetch=2)|greedy_recompute",
                           "zero3(ranks=4,reshard_after_forward=no)|1f1b|rotor",
                           "zero3(ranks=4,reshard_after_forward=no)|zb_h1",
                           "zero3(reshard_after_forward=2)",
                           "zero3(overlap=none)|rotor",
                           "zero2(ranks=4,overlap=none)|1f1b",
                           "zero3(reshard_after_forward=4,prefetch=2)|greedy_recompute",
                           "zero3(reshard_after_forward=2,prefetch=4)",
                           "megatron(tensor=2)|zero3(reshard_after_forward=2)",
                           "data_parallel(ranks=2)|zero3(ranks=4,reshard_after_forward=2)",
                           "zero3(ranks=4,reshard_after_forward=2)|1f1b|rotor"}) {
    CAPTURE(spec);
    const Problem problem = problem_on(trace, "h100_sxm_8", 8, spec);
    judged_plan(problem, spec);
  }
}

// What the rule runs again on one device it runs again in every replica, also where memory for all is there. Less
// memory than all values take does with it, too, though no plan without it does.
TEST_CASE("a framework's rule holds in replicas as on one device", "[hybrid]") {
  const std::string trace = "llama:layers=3,width=64,heads=4,kv_heads=2,inner=128,sequence=32,batch=2,vocabulary=96";
  const auto run_again = [](const Problem& problem, const Schedule& schedule) {
    return std::ranges::count_if(schedule.steps, [&](const Step& step) {
      return step.kind == StepKind::recompute && !collective_of(problem.graph[step.op]);  // zero3 gathers again
    });
  };
  for (const std::string rule : {"policy(rule=torchtitan.full)", "policy(rule=megatron.core_attn)"}) {
    const Problem one = problem_on(trace, "h100_sxm_8", 1, rule);
    const std::ptrdiff_t alone = run_again(one, judged_plan(one, rule).schedule);
    CHECK(alone > 0);
    for (const char* replicas : {"data_parallel", "zero1", "zero3"}) {
      const std::string spec = std::string(replicas) + "|" + rule;
      CAPTURE(spec);
      const Problem problem = problem_on(trace, "h100_sxm_8", 8, spec);
      const Plan unlimited = judged_plan(problem, spec);
      CHECK(run_again(problem, unlimited.schedule) == alone);
      CHECK(judged_plan(problem, spec, unlimited.peak).peak <= unlimited.peak);
      CHECK(judged_plan(problem, replicas).peak > unlimited.peak);
    }
  }
}

TEST_CASE("shares that are handed out have no place between updates within an iteration", "[hybrid]") {
  for (const char* spec : {"zero1(ranks=2)|pipedream(stages=2)", "zero2(ranks=2)|pipedream_2bw(stages=2)"}) {
    CAPTURE(spec);
    const Problem problem =
        problem_on("transformer:layers=3,width=64,heads=4,sequence=32,vocabulary=100", "h100_sxm_8", 8, spec);
    CHECK_THROWS_AS(plan(problem, parse_spec(spec, "test"), std::nullopt), InputError);
  }
}

TEST_CASE("chains train in replicas, too", "[hybrid]") {
  for (const char* spec : {"data_parallel", "zero1", "zero2", "zero3", "zero3|rotor|offload_greedy",
                           "zero1(ranks=2)|1f1b|rotor", "data_parallel(ranks=4)|pipedream", "zero3(ranks=2)|zb_h1"}) {
    CAPTURE(spec);
    const Problem problem =
        problem_on("transformer:layers=3,width=64,heads=4,sequence=32,vocabulary=100", "h100_sxm_8", 8, spec);
    judged_plan(problem, spec);
  }
}

// Where stages are planned, what ZeRO exchanges is part of them: gathers of the stage's own parameters, sums of their
// gradients, each by the closed form, and as much room.
// Beside a forward runs the gather of the next stage; beside a backward the gather of the stage before and the sum of
// the one behind.
TEST_CASE("stages of chains take of ZeRO's exchanges what their neighbours do not hide", "[hybrid]") {
  const std::string trace = "transformer:layers=3,width=64,heads=4,sequence=32,vocabulary=100";
  const Problem before = problem_on(trace, "h100_sxm_8", 8, "store_all");
  const std::vector<Stage>& plain = before.chain->stages;
  auto times_or_why = CollectiveTimes::on(before.platform, Mesh{{{"data", 4, true, CollectiveWay::ring}}});
  CollectiveTimes& times = std::get<CollectiveTimes>(times_or_why);
  constexpr std::uint32_t axis = 0;
  const std::size_t count = plain.size();
  std::vector<Bytes> parameters(count + 2), gradients(count + 2);
  for (std::size_t s = 0; s < count; ++s) {
    for (const std::uint32_t p : std::set<std::uint32_t>(plain[s].parameters.begin(), plain[s].parameters.end())) {
      parameters[s] += before.chain->parameters[p].bytes;
    }
    gradients[s] = plain[s].parameter_gradient.value_or(parameters[s]);
  }
  const auto seconds = [&](CollectiveKind kind, Bytes bytes) {
    return bytes > Bytes{0} ? times.seconds(kind, bytes, std::span(&axis, 1)).value : 0;
  };
  std::size_t exchanging = 0, hidden = 0;
  for (const char* spec :
       {"zero2(ranks=4)", "zero3(ranks=4,prefetch=0)", "zero3(ranks=4)", "zero3(ranks=4,reshard_after_forward=no)",
        "zero3(ranks=4,prefetch=0,reshard_after_forward=no)"}) {
    CAPTURE(spec);
    const std::string_view asked = spec;
    const bool gathers = asked.starts_with("zero3"), is_ahead = gathers && asked.find("prefetch=0") == asked.npos,
               stay = asked.find("reshard") != asked.npos;
    const Problem after = problem_on(trace, "h100_sxm_8", 8, spec);
    REQUIRE(after.chain->stages.size() == count);
    const auto gather = [&](std::size_t s) { return gathers ? seconds(CollectiveKind::all_gather, parameters[s]) : 0; };
    const auto sum = [&](std::size_t s) { return seconds(CollectiveKind::reduce_scatter, gradients[s]); };
    const auto left = [](double exchange, Seconds beside) { return std::max(exchange - beside.value, 0.0); };
    for (std::size_t s = 0; s < count; ++s) {
      const Stage& shared = after.chain->stages[s];
      const bool is_first = s == 0, is_last = s + 1 == count;
      const double waits = is_ahead && !is_first ? left(gather(s), plain[s - 1].forward) : gather(s);
      CHECK(shared.forward.value == Approx(plain[s].forward.value + waits).epsilon(1e-12));
      const Seconds behind = is_last ? plain[s].forward : plain[s + 1].backward;
      const double again = stay ? 0 : gather(s);
      double backward = is_ahead ? left(again + sum(s + 2), behind) : again + left(sum(s + 2), behind);
      if (is_first) backward += sum(0) + left(sum(1), plain[0].backward);
      CHECK(shared.backward.value == Approx(plain[s].backward.value + backward).epsilon(1e-12));
      const Bytes own = gathers ? parameters[s] : Bytes{0};
      const Bytes run = stay ? Bytes{0} : own;  // whole while a pass runs, beside what is saved
      const Bytes next = is_ahead ? (is_last ? run : parameters[s + 1]) : Bytes{0};
      CHECK(shared.forward_workspace == plain[s].forward_workspace + run + next);
      CHECK(shared.forward_nograd_workspace == plain[s].forward_nograd_workspace + own + next);
      CHECK(shared.saved == plain[s].saved + (stay ? own : Bytes{0}));
      const Bytes former = is_ahead && !is_first && !stay ? parameters[s - 1] : Bytes{0};
      CHECK(shared.backward_workspace == plain[s].backward_workspace + gradients[s] + run + gradients[s + 1] + former);
      exchanging += sum(s) > 0 ? 1 : 0;
      hidden += gather(s) > waits ? 1 : 0;
    }
  }
  CHECK(exchanging >= 9);
  CHECK(hidden >= 2);
}

// What is planned by ops knows the date of each exchange; stages know their neighbours only, and wait no less.
TEST_CASE("stages of a graph hide gathers, and not more than its ops do", "[hybrid]") {
  const std::string trace = graph_of({.layers = 4, .h = 512, .a = 8, .s = 256, .b = 8, .v = 512});
  const auto makespan = [&](const std::string& spec) {
    return judged_plan(problem_on(trace, "h100_sxm_8", 8, spec), spec).makespan;
  };
  const Seconds by_ops = makespan("zero3"), ahead = makespan("zero3|rotor"), late = makespan("zero3(prefetch=0)|rotor");
  CHECK(by_ops <= (1 + 1e-9) * ahead);
  CHECK(ahead < late);
}

TEST_CASE("more replicas keep less, and never take longer to compute", "[hybrid]") {
  const std::string trace = graph_of({});
  for (const char* name : {"zero1", "zero2", "zero3"}) {
    std::optional<Bytes> before;
    for (const int ranks : {1, 2, 4, 8}) {
      const std::string spec = std::string(name) + "(ranks=" + std::to_string(ranks) + ")";
      CAPTURE(spec);
      const Bytes peak = judged_plan(problem_on(trace, "h100_sxm_8", 8, spec), spec).peak;
      if (before) CHECK(peak <= *before);
      before = peak;
    }
  }
}

/// Two ops of a forward, a -> b -> c, and a backward that reads b and what the second op only saves.
Graph small_training() {
  Graph graph;
  const auto tensor = [&](const char* name, TensorKind kind) {
    Tensor made;
    made.name = name;
    made.kind = kind;
    made.bytes = Bytes{8};
    made.storage = id_at<StorageId>(graph.storages++);
    graph.tensors.push_back(std::move(made));
    return id_at<TensorId>(graph.tensors.size() - 1);
  };
  const auto op = [&](const char* name, Phase phase, std::vector<TensorId> inputs, std::vector<TensorId> outputs) {
    Op made;
    made.name = name;
    made.phase = phase;
    made.duration = Seconds{2};
    made.inputs = std::move(inputs);
    made.outputs = std::move(outputs);
    graph.ops.push_back(std::move(made));
  };
  const TensorId a = tensor("a", TensorKind::input), b = tensor("b", TensorKind::activation),
                 c = tensor("c", TensorKind::activation), mask = tensor("mask", TensorKind::activation),
                 d = tensor("d", TensorKind::gradient);
  op("first", Phase::forward, {a}, {b});
  op("second", Phase::forward, {b}, {c, mask});
  op("backward", Phase::backward, {b, c, mask}, {d});
  graph.ops[1].saved = {mask};
  graph.ops[1].nograd_duration = Seconds{1};
  return graph;
}

TEST_CASE("what an op only saves is not made by a first run that runs again", "[hybrid][recompute]") {
  const Graph graph = small_training();
  const auto made = with_recomputed_ops(graph, {false, true, false});
  const Graph& again = std::get<Graph>(made);
  REQUIRE(again.ops.size() == 4);
  CHECK(again.ops[1].outputs == std::vector{graph.ops[1].outputs[0]});
  CHECK(again.ops[1].duration == Seconds{1});
  CHECK(again.ops[1].saved.empty());
  CHECK(again.ops[2].name == "second second");
  CHECK(again.ops[2].duration == Seconds{2});
  CHECK(again.ops[2].outputs.size() == 2);
  CHECK(again.ops[3].inputs == std::vector{graph.ops[2].inputs[0], again.ops[2].outputs[0], again.ops[2].outputs[1]});
}

TEST_CASE("ops that cannot run again are refused by name", "[hybrid][recompute]") {
  Graph graph = small_training();
  graph.ops[2].mutates = {graph.ops[2].inputs[0]};
  CHECK(std::get<std::string>(with_recomputed_ops(graph, {false, true, false})) ==
        "'second' reads 'b', which is overwritten");
  CHECK(std::holds_alternative<Graph>(with_recomputed_ops(graph, {true, false, false})));
  graph.ops[0].recomputable = false;
  CHECK(std::get<std::string>(with_recomputed_ops(graph, {true, false, false})) == "'first' cannot run again");
  const std::string trace = graph_of({});
  CHECK(refusal(trace, "h100_sxm_8", 1, "recompute_ops(ops=scor)|megatron") ==
        "recompute_ops: no forward op of '" + trace + "' is named like 'scor'; did you mean 'score'?");
  CHECK(
      refusal("transformer:layers=2", "h100_sxm_8", 1, "recompute_ops|data_parallel") ==
      "recompute_ops: 'transformer:layers=2' is a chain, whose ops are whole stages: 'selective' chooses among these");
}

TEST_CASE("what cannot be split is refused in one sentence", "[hybrid]") {
  const std::string trace = graph_of({.v = 60}), chain = "uniform:4";
  CHECK(refusal(trace, "h100_sxm_8", 1, "megatron(tensor=3)") ==
        "megatron: 'a' of 'layer0.attention.qkv' has 8 in 'layer0.attention.qkv.weight', which 3 ranks do not divide; "
        "2 or 4 would");
  CHECK(refusal(trace, "h100_sxm_8", 6, "zero1") ==
        "zero1: 8 ranks cannot share out 6 micro-batches equally; give a multiple of 8");
  CHECK(refusal(trace, "h100_sxm_8", 16, "zero1(ranks=16)") == "zero1: 16 ranks, but 'h100_sxm_8' has 8 devices");
  CHECK(refusal(trace, "h100_sxm_8", 8, "zero2", Optimizer::none) ==
        "zero2: there are no updates whose states could be shared out: give an optimizer");
  CHECK(refusal(chain, "ideal", 1, "megatron(tensor=1)") ==
        "megatron: 'uniform:4' is a chain of stages, whose operators are not known: give a graph, such as "
        "transformer:view=graph");
  CHECK(refusal(graph_of({}), "h100_sxm_8", 8, "megatron|zero3") ==
        "zero3: no device is left for a second replica: each takes 8 devices, and 'h100_sxm_8' has 8");
  CHECK(refusal(trace, "h100_sxm_8", 8, "zero1(ranks=2)|megatron") ==
        "megatron: it cuts operators, and stands before what trains several replicas of them");
  CHECK(refusal(graph_of({}), "h100_sxm_8", 8, "megatron(tensor=2)|hsm2dl") ==
        "hsm2dl: it cuts operators, and stands before what trains several replicas of them");
  CHECK(refusal(trace, "h100_sxm_8", 8, "data_parallel(ranks=2)|zero1(ranks=2)") ==
        "zero1: the ranks of an axis 'data' train together already");
}
