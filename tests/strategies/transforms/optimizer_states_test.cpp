// Transforms that take Adam's place: what their optimizers keep and move, against closed forms, and every strategy
// after them.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <numeric>

#include "platforms/platform_file.h"
#include "sim/io/input_error.h"
#include "sim/judge/check.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"
#include "tests/strategies/judged_plan.h"
#include "traces/imports/framework_graphs.h"

namespace plimsoll {
namespace {

Problem changed_by(const Problem& problem, const std::string& spec) {
  return transformed(problem, parse_spec(spec, "test"));
}

std::string refusal_of(const Problem& problem, const std::string& spec) {
  try {
    changed_by(problem, spec);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

Problem on_adam(std::string_view model, Optimizer optimizer = Optimizer::adam) {
  return problem_of(framework_graph(model), load_platform("h200"), {.optimizer = optimizer});
}

Bytes states_in(const Problem& problem) {
  return bytes_of_kind(problem.graph, TensorKind::optimizer_state);
}

const std::vector<std::string> models{"resnet18:batch=2", "resnet50:batch=2", "deit_ti:batch=2", "deit_b:batch=2"};

std::int64_t numbers_of_shape(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

/// Sum of what `bytes` says of the shape of each parameter.
template <class Rule>
Bytes sum_over_parameters(const Graph& graph, Rule bytes) {
  std::int64_t sum = 0;
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.kind == TensorKind::parameter) sum += bytes(tensor.shape);
  }
  return Bytes{sum};
}

std::int64_t adam8bit_bytes(std::int64_t n) {
  return n < 4096 ? 8 * n : 2 * n + 8 * static_cast<std::int64_t>(std::ceil(static_cast<double>(n) / 256));
}

// ------------------------------------------------------------------------------------------------------- adam8bit

TEST_CASE("adam8bit keeps what bitsandbytes keeps, parameter by parameter", "[adam8bit]") {
  for (const std::string& model : models) {
    INFO(model);
    const Problem plain = on_adam(model), made = changed_by(plain, "adam8bit");
    const auto rule = [](const auto& shape) { return adam8bit_bytes(numbers_of_shape(shape)); };
    CHECK(states_in(made) == sum_over_parameters(plain.graph, rule));
    const Bytes parameters = bytes_of_kind(plain.graph, TensorKind::parameter);
    CHECK(bytes_of_kind(made.graph, TensorKind::parameter) == parameters + Bytes{2048});
    CHECK(static_cast<double>(states_in(made).count) < 0.27 * static_cast<double>(states_in(plain).count));
  }
}

// 75 % less: Dettmers et al., abstract of version 2 and table 1.
TEST_CASE("adam8bit takes three quarters of Adam's states, but for small parameters", "[adam8bit]") {
  const Problem plain = on_adam("deit_b:batch=2");
  const double share =
      static_cast<double>(states_in(changed_by(plain, "adam8bit")).count) / static_cast<double>(states_in(plain).count);
  CHECK(share == Approx(0.25 + 1.0 / 256).epsilon(0.01));
  CHECK(changed_by(plain, "adam8bit(least=1000000000)").graph.tensors.size() == plain.graph.tensors.size() + 1);
  CHECK(states_in(changed_by(plain, "adam8bit(least=1000000000)")) == states_in(plain));
}

// A weight of 8192 numbers and a bias of 16, whose gradients are as large: the update reads a gradient, reads and
// writes two states and the parameter.
TEST_CASE("adam8bit by hand: an update moves what it reads and writes", "[adam8bit]") {
  Chain chain = even_chain(2);
  for (const std::int64_t n : {8192, 16}) {
    chain.stages[0].parameters.push_back(static_cast<std::uint32_t>(chain.parameters.size()));
    chain.parameters.push_back({"w" + std::to_string(n), Bytes{4 * n}});
  }
  chain.source.dtype = "fp32";
  const Problem made = changed_by(problem_of(chain, gpus({}), {.optimizer = Optimizer::adam}), "adam8bit");
  REQUIRE(made.index->updates.size() == 2);
  const Op &large = made.graph[made.index->updates[0]], &small = made.graph[made.index->updates[1]];
  CHECK(large.bytes_moved == Bytes{4 * 8192 + 2 * 2 * (8192 + 4 * 32) + 2 * 4 * 8192});
  CHECK(small.bytes_moved == Bytes{7 * 4 * 16});
  CHECK(large.workspace == Bytes{0});
  CHECK(made.chain->parameters[0].states == Bytes{2 * (8192 + 4 * 32)});
  CHECK(made.chain->parameters[1].states == Bytes{8 * 16});
  CHECK(made.chain->parameters[2].bytes == Bytes{2048});
}

TEST_CASE("adam8bit leaves the states of named parameters as they are", "[adam8bit]") {
  const Problem plain = on_adam("deit_ti:batch=2");
  const Tensor* head = nullptr;
  for (const Tensor& tensor : plain.graph.tensors) {
    if (tensor.kind == TensorKind::parameter && tensor.name.starts_with("head.weight")) head = &tensor;
  }
  REQUIRE(head != nullptr);
  const std::int64_t n = numbers_of_shape(head->shape);
  CHECK(states_in(changed_by(plain, "adam8bit(fp32=" + head->name + ")")).count ==
        states_in(changed_by(plain, "adam8bit")).count + 8 * n - adam8bit_bytes(n));
  CHECK(refusal_of(plain, "adam8bit(fp32=embeddings)") ==
        "adam8bit: 'deit_ti:batch=2' has no op of kind embedding: name the parameters, as in fp32=wte");
  CHECK(refusal_of(plain, "adam8bit(fp32=nothing)") == "adam8bit: no parameter of 'deit_ti:batch=2' is 'nothing'");
}

TEST_CASE("with fp32 copies of narrower parameters adam8bit packs the two states only", "[adam8bit]") {
  Chain chain = even_chain(1);
  chain.source.dtype = "bf16";
  chain.stages[0].parameters = {0};
  chain.parameters.push_back({"w", Bytes{2 * 5000}});
  const Problem plain = problem_of(chain, gpus({}), {.optimizer = Optimizer::adam, .states = States::fp32});
  CHECK(states_in(plain) == Bytes{12 * 5000});
  CHECK(states_in(changed_by(plain, "adam8bit")) == Bytes{4 * 5000 + 2 * (5000 + 4 * 20)});
}

TEST_CASE("transforms of Adam say where there is no Adam", "[adam8bit]") {
  for (const std::string spec : {"adam8bit", "adafactor", "galore"}) {
    CHECK(refusal_of(on_adam("resnet18:batch=2", Optimizer::none), spec) ==
          spec + ": it takes the place of Adam's updates, and there are none: give --optimizer adam");
    CHECK(refusal_of(on_adam("resnet18:batch=2", Optimizer::momentum), spec) ==
          spec +
              ": 'update of stem.weight.1' keeps 1 states for 'stem.weight.1', not two: it takes the place of "
              "Adam's updates only (--optimizer adam)");
  }
  CHECK(refusal_of(on_adam("resnet18:batch=2"), "adam8bit|adafactor") ==
        "adafactor: 'update of stem.weight.1' is one of adam8bit: it takes the place of Adam's updates only "
        "(--optimizer adam)");
}

Problem random_adam_chain(std::uint64_t seed, const Gpus& rates = {}) {
  Random random(seed);
  Chain chain = random_small_chain(seed, random.between(1, 6));
  chain.source.dtype = "fp32";
  for (Parameter& parameter : chain.parameters) parameter.bytes = Bytes{4 * random.between(1, 9000)};
  for (Stage& stage : chain.stages) stage.parameter_gradient.reset();
  const ProblemOptions options{.micro_batches = random.chance(0.7) ? 1U : 2U, .optimizer = Optimizer::adam};
  return problem_of(chain, gpus(rates), options);
}

bool trains(const Problem& problem) {
  return std::ranges::any_of(problem.graph.ops, [](const Op& op) { return op.phase == Phase::update; });
}

TEST_CASE("every strategy plans on 8-bit states as promised, and never faster with less", "[adam8bit][eleventh-8]") {
  for (const std::string each : {"store_all", "rotor", "chen_sqrt", "rotor_floating", "rockmate", "greedy_recompute",
                                 "dtr", "offload_greedy", "pofo", "zero_offload", "twinflow",
                                 "rotor|offload_greedy|zero_offload", "demand_layering", "offmate(steps=2)"}) {
    for (const RandomCase seed : fewer_cases(1, 10)) {
      const Problem whole = random_adam_chain(seed, {.to_host = BytesPerSecond{80000}, .adam = BytesPerSecond{80000}});
      if (!trains(whole)) continue;
      const std::string spec = "adam8bit|" + each;
      INFO(spec << ", seed " << seed);
      const Plan free = judged(whole, spec);
      const Bytes least = smallest(whole, spec);
      CHECK(least < smallest(whole, each) + Bytes{2049});
      double slower = free.makespan.value;
      for (const std::int64_t share : {3, 2, 1, 0}) {
        const Bytes budget = least + Bytes{share * (free.peak - least).count / 4};
        const Plan made = judged(whole, spec, budget);
        CHECK(made.makespan.value >= slower * (1 - 1e-9));
        slower = std::max(slower, made.makespan.value);
      }
    }
  }
}

TEST_CASE("updates of 8-bit states stand behind pipelines", "[adam8bit]") {
  for (const RandomCase seed : fewer_cases(1, 10)) {
    Chain chain = random_small_chain(seed, 4);
    chain.source.dtype = "fp32";
    for (Stage& stage : chain.stages) stage.parameter_gradient.reset();
    for (std::size_t s = 0; s < 4; ++s) {
      chain.stages[s].parameters = {static_cast<std::uint32_t>(chain.parameters.size())};
      chain.parameters.push_back({"large" + std::to_string(s), Bytes{4 * 5000}});
    }
    const Problem whole = problem_of(chain, gpus({.count = 2}), {.micro_batches = 4, .optimizer = Optimizer::adam});
    for (const std::string each : {"1f1b(stages=2)", "gpipe(stages=2)|rotor", "pipedream(stages=2)"}) {
      INFO(each << ", seed " << seed);
      const Plan plain = planned(whole, each), made = planned(whole, "adam8bit|" + each);
      CHECK(made.peak < plain.peak);
      const Problem changed = changed_by(whole, "adam8bit");
      CHECK(check(made.schedule, changed.graph, changed.platform, 1).empty());
    }
    CHECK(refusal_of(whole, "adam8bit|seq1f1b(stages=2)") ==
          "seq1f1b: it slices a model as its trace states it, but a transform before it has changed which parameters "
          "are trained or their states");
  }
}

// ------------------------------------------------------------------------------------------------------ adafactor

/// As torch.optim.Adafactor makes them, in its words: row_shape[-1] = 1, col_shape[-2] = 1.
std::int64_t adafactor_numbers(std::vector<std::int64_t> shape) {
  if (shape.size() < 2) return numbers_of_shape(shape);
  std::vector<std::int64_t> row = shape, column = shape;
  row.back() = 1;
  column[column.size() - 2] = 1;
  return numbers_of_shape(row) + numbers_of_shape(column);
}

TEST_CASE("adafactor keeps the numbers of rows and columns", "[adafactor]") {
  for (const std::string& model : models) {
    INFO(model);
    const Problem plain = on_adam(model);
    const Problem made = changed_by(plain, "adafactor"), with = changed_by(plain, "adafactor(momentum=on)");
    const auto rule = [](const auto& shape) { return 4 * adafactor_numbers(shape); };
    CHECK(states_in(made) == sum_over_parameters(plain.graph, rule));
    CHECK(states_in(with) == states_in(made) + bytes_of_kind(plain.graph, TensorKind::parameter));
  }
}

// DeiT-B: 86.6 million parameters, of which the matrices' states are a thousandth.
TEST_CASE("adafactor's states of a transformer are next to nothing", "[adafactor]") {
  const Problem plain = on_adam("deit_b:batch=2");
  CHECK(static_cast<double>(states_in(changed_by(plain, "adafactor")).count) <
        0.01 * static_cast<double>(states_in(plain).count));
}

/// A weight of 3 x 2 matrices of 5 x 7 and a bias of 11.
Graph graph_with_shapes() {
  Graph graph;
  graph.name = "shapes";
  graph.source.dtype = "fp32";
  const auto tensor = [&](const char* name, TensorKind kind, std::vector<std::int64_t> shape) {
    graph.tensors.push_back({.name = name,
                             .kind = kind,
                             .bytes = Bytes{4 * numbers_of_shape(shape)},
                             .storage = id_at<StorageId>(graph.storages++),
                             .shape = std::move(shape),
                             .dtype = {}});
    return id_at<TensorId>(graph.tensors.size() - 1);
  };
  const TensorId x = tensor("x", TensorKind::input, {2}), w = tensor("w", TensorKind::parameter, {3, 2, 5, 7});
  const TensorId b = tensor("b", TensorKind::parameter, {11}), y = tensor("y", TensorKind::activation, {2});
  const TensorId gw = tensor("gradient of w", TensorKind::parameter_gradient, {3, 2, 5, 7});
  const TensorId gb = tensor("gradient of b", TensorKind::parameter_gradient, {11});
  graph.ops.push_back({.name = "f", .kind = "f", .duration = Seconds{1}, .inputs = {x, w, b}, .outputs = {y}});
  graph.ops.push_back({.name = "g",
                       .kind = "g",
                       .phase = Phase::backward,
                       .duration = Seconds{2},
                       .inputs = {y, x, w},
                       .outputs = {gw, gb}});
  return graph;
}

TEST_CASE("adafactor by hand: what an update keeps, works in and moves", "[adafactor]") {
  const Problem plain = problem_of(graph_with_shapes(), gpus({}), {.optimizer = Optimizer::adam});
  const Problem made = changed_by(plain, "adafactor");
  const Op &weight = made.graph.ops[2], &bias = made.graph.ops[3];
  CHECK(states_in(made) == Bytes{4 * (3 * 2 * 5 + 3 * 2 * 7 + 11)});
  CHECK(weight.workspace == Bytes{4 * 210});
  CHECK(bias.workspace == Bytes{2 * 4 * 11});
  // PyTorch's loop reads and writes 17 numbers for each of a matrix's, and its factors; 19 of a vector's.
  CHECK(weight.bytes_moved == Bytes{4 * (17 * 210 + 2 * (30 + 42))});
  CHECK(bias.bytes_moved == Bytes{4 * 19 * 11});
  CHECK(weight.inputs.size() == 4);
  CHECK(bias.inputs.size() == 3);
}

TEST_CASE("every strategy plans on factored states as promised", "[adafactor]") {
  const Problem whole = on_adam("resnet18:batch=1,size=32");
  for (const std::string each : {"store_all", "greedy_recompute", "dtr", "offload_greedy", "quantize", "save_on_cpu"}) {
    const std::string spec = "adafactor|" + each;
    INFO(spec);
    const Plan free = judged(whole, spec);
    const Bytes least = smallest(whole, spec);
    judged(whole, spec, least);
    judged(whole, spec, Bytes{(least + free.peak).count / 2});
  }
}

TEST_CASE("adafactor says whose shape it does not know", "[adafactor]") {
  Chain chain = even_chain(1);
  chain.source.dtype = "fp32";
  chain.stages[0].parameters = {0};
  chain.parameters.push_back({"w", Bytes{40}});
  CHECK(refusal_of(problem_of(chain, gpus({}), {.optimizer = Optimizer::adam}), "adafactor") ==
        "adafactor: the shape of 'w' is not known: only graphs that state the shapes of parameters have rows and "
        "columns");
}

// --------------------------------------------------------------------------------------------------------- galore

/// Of a matrix, by the formula of the paper: m n is the weight's, here m <= n, r the rank: n r twice and m r.
std::int64_t galore_numbers(const std::vector<std::int64_t>& shape, std::int64_t r) {
  if (shape.size() != 2) return 2 * numbers_of_shape(shape);
  const std::int64_t m = std::min(shape[0], shape[1]), n = std::max(shape[0], shape[1]);
  return 2 * n * r + m * r;
}

TEST_CASE("galore keeps two states of low rank and the projection of each matrix", "[galore]") {
  for (const std::string& model : models) {
    for (const std::int64_t rank : {4, 128}) {
      const std::string spec = "galore(rank=" + std::to_string(rank) + ")";
      INFO(model << ", " << spec);
      const Problem plain = on_adam(model), made = changed_by(plain, spec);
      const auto rule = [rank](const auto& shape) { return 4 * galore_numbers(shape, rank); };
      CHECK(states_in(made) == sum_over_parameters(plain.graph, rule));
    }
  }
}

TEST_CASE("galore in 8 bits packs the projected states as adam8bit does", "[galore]") {
  const Problem plain = on_adam("deit_ti:batch=2");
  const auto rule = [](const auto& shape) {
    if (shape.size() != 2) return 8 * numbers_of_shape(shape);
    const std::int64_t m = std::min(shape[0], shape[1]), n = std::max(shape[0], shape[1]);
    return adam8bit_bytes(n * 64) + 4 * m * 64;
  };
  CHECK(states_in(changed_by(plain, "galore(rank=64, bits=8)")) == sum_over_parameters(plain.graph, rule));
}

/// A matrix of 6 x 20 and a bias.
Problem one_matrix() {
  Graph graph = graph_with_shapes();
  for (Tensor& tensor : graph.tensors) {
    if (tensor.name != "w" && tensor.name != "gradient of w") continue;
    tensor.shape = {6, 20};
    tensor.bytes = Bytes{4 * 120};
  }
  return problem_of(graph, gpus({.to_host = BytesPerSecond{8}}), {.optimizer = Optimizer::adam});
}

TEST_CASE("galore by hand: what an update computes and works in, with and without a decomposition", "[galore]") {
  const Op mean = changed_by(one_matrix(), "galore(rank=2, every=10)").graph.ops[2];
  const Op refresh = changed_by(one_matrix(), "galore(rank=2, step=refresh)").graph.ops[2];
  const double projections = 2 * 2.0 * 120 * 2, decomposition = 6.0 * 20 * 36 + 20.0 * 216;
  CHECK(mean.flops->count == Approx(projections + decomposition / 10));
  CHECK(refresh.flops->count == Approx(projections + decomposition));
  CHECK(mean.workspace == Bytes{4 * (3 * 40 + 2 * 120)});
  // U is 20 x 6 or 6 x 6, V the other; 6 singular values; a copy of the matrix.
  CHECK(changed_by(one_matrix(), "galore(rank=1, step=refresh)").graph.ops[2].workspace ==
        Bytes{4 * std::max(3 * 20 + 2 * 120, 120 + 120 + 6 + 36)});
  CHECK(refresh.workspace == mean.workspace);  // the usual step takes more of so small a matrix
  const auto moved = 120 + 2 * (2 * 40 + 12) + 2 * 120 + 15 * 40 + 4 * 120;
  CHECK(mean.bytes_moved == Bytes{4 * moved});
}

TEST_CASE("galore's decomposition is a spike of memory that the other steps do not have", "[galore]") {
  Graph graph = graph_with_shapes();
  for (Tensor& tensor : graph.tensors) {
    if (tensor.name != "w" && tensor.name != "gradient of w") continue;
    tensor.shape = {400, 400};
    tensor.bytes = Bytes{4 * 160'000};
  }
  const Problem whole = problem_of(graph, gpus({}), {.optimizer = Optimizer::adam});
  const Plan mean = judged(whole, "galore"), spike = judged(whole, "galore(step=refresh)");
  const std::int64_t usual = 3 * 1600 + 2 * 160'000, decomposes = 2 * 160'000 + 400 + 160'000;
  CHECK(spike.peak - mean.peak == Bytes{4 * (decomposes - usual)});
  CHECK(changed_by(whole, "galore").notes ==
        std::vector<std::string>{"galore projects 1 matrices to rank 4; one step in 200 decomposes them and needs up "
                                 "to 1.92 MB more, other steps up to 1.30 MB: this is a step of mean time and of the "
                                 "others' memory; galore|backward_updates saves 0 B of gradients"});
}

TEST_CASE("galore says what it cannot project", "[galore]") {
  CHECK(refusal_of(one_matrix(), "galore(rank=7)") ==
        "galore: rank 7 is larger than 'w', a matrix of 6 x 20: leave it out by matrices=");
  CHECK(refusal_of(one_matrix(), "galore(matrices=q*)") == "galore: no matrix of 'shapes' is 'q*'");
  for (const std::string spec : {"galore(rank=0)", "galore(every=0)", "galore(step=worst)"}) {
    CHECK_THROWS_AS(parse_spec(spec, "test"), InputError);
  }
}

}  // namespace
}  // namespace plimsoll
