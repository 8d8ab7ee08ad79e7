// megatron against the closed forms of their papers, and with the strategies of others.

#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <set>

#include "platforms/platform_file.h"
#include "sim/core/collective_op.h"
#include "sim/io/text_file.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "strategies/transforms/recompute_ops.h"
#include "tests/hybrid/judged_plan.h"
#include "tests/hybrid/transformer_ranks.h"
#include "traces/models/synthetic.h"

using namespace plimsoll;

namespace {

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

}  // namespace

// By hand, as the paper counts layers: a decoder's layer keeps 13sbh + 5as^2b for each attention, less what the second
// one's keys and values read, and 21sbh for the MLP; that is kept once for all layers, behind the encoder's last norm.
// Products are of 4 and 12 numbers of sbh by h for each attention and MLP, scores of 2 of sbh by s; a backward has two
// for each.
TEST_CASE("a decoder's layer keeps and computes what its formulas say", "[hybrid]") {
  const TransformerSizes of;
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
  const TransformerSizes of;
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
  const TransformerSizes of;
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
  const TransformerSizes of;
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
    const TransformerSizes shape{.layers = 96, .h = 12288, .a = 96, .s = 2048, .b = row.batch, .v = 51200};
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
  const TransformerSizes two{.layers = 2}, four{.layers = 4};
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

TEST_CASE("words and inner numbers that ranks do not divide are padded, and it is said", "[hybrid]") {
  const TransformerSizes of{.v = 60};
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
