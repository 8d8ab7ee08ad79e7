#include "sim/core/optimizer.h"

#include <catch2/catch.hpp>

#include "sim/model/graph_updates.h"
#include "sim/model/problem.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/generate/views.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

/// One stage of 10 numbers, and its loss.
Chain ten_numbers(const std::string& dtype) {
  Chain chain;
  chain.source.dtype = dtype;
  chain.input = Bytes{4};
  Stage stage, loss;
  stage.name = "layer";
  stage.output = stage.saved = stage.input_gradient = Bytes{4};
  stage.parameters = {0};
  loss.name = "loss";
  loss.input_gradient = Bytes{4};
  chain.stages = {stage, loss};
  const std::int64_t each = bytes_of_dtype(dtype).value_or(2);
  chain.parameters = {{"w", Bytes{10 * each}}};
  return chain;
}

struct Expected {
  std::string dtype;
  Optimizer optimizer;
  States states;
  std::int64_t kept, moved;  ///< of one number
  States taken;
};

// One number of 2 bytes with an fp32 copy: gradient read 2, parameter written 2, copy and states read and written,
// 8 each. Without a copy the parameter is read too.
TEST_CASE("an optimizer keeps and moves what its parameters' dtype asks for", "[optimizer]") {
  using enum States;
  const auto e = GENERATE(Expected{"bf16", Optimizer::adam, by_dtype, 12, 2 + 2 + 3 * 8, fp32},
                          Expected{"fp16", Optimizer::momentum, by_dtype, 8, 2 + 2 + 2 * 8, fp32},
                          Expected{"bfloat16", Optimizer::sgd, by_dtype, 4, 2 + 2 + 8, fp32},
                          Expected{"bf16", Optimizer::adam, fp32, 12, 28, fp32},
                          Expected{"bf16", Optimizer::adam, as_parameters, 4, 7 * 2, as_parameters},
                          Expected{"fp32", Optimizer::adam, by_dtype, 8, 7 * 4, as_parameters},
                          Expected{"fp32", Optimizer::adam, fp32, 8, 7 * 4, fp32},
                          Expected{"fp32", Optimizer::momentum, as_parameters, 4, 5 * 4, as_parameters},
                          Expected{"fp32", Optimizer::sgd, by_dtype, 0, 3 * 4, as_parameters},
                          Expected{"fp64", Optimizer::adam, by_dtype, 16, 7 * 8, as_parameters},
                          Expected{"fp64", Optimizer::adam, fp32, 8, 3 * 8 + 4 * 4, fp32},
                          Expected{"posit", Optimizer::adam, by_dtype, 4, 7 * 2, as_parameters});
  INFO(e.dtype << " " << static_cast<int>(e.optimizer) << " " << static_cast<int>(e.states));
  const Problem problem = problem_of(ten_numbers(e.dtype), gpus({.adam = BytesPerSecond{4}}),
                                     {.optimizer = e.optimizer, .states = e.states});
  CHECK(bytes_of_kind(problem.graph, TensorKind::optimizer_state) == Bytes{10 * e.kept});
  const OpId update = problem.index->updates.at(0);
  CHECK(problem.graph[update].bytes_moved == Bytes{10 * e.moved});
  CHECK(problem.states == e.taken);
  // The host updates 4 bytes of fp32 parameters a second, and moves 28 for them.
  CHECK(seconds_on_host(problem, update, MemoryId{1})->value == Approx(static_cast<double>(10 * e.moved) / 28));
}

TEST_CASE("of a stage that is partly frozen, states and update are those of what is trained", "[optimizer]") {
  Chain chain = ten_numbers("fp32");
  chain.parameters.push_back({.name = "frozen", .bytes = Bytes{4000}, .dtype = "unknown", .trained = false});
  chain.stages[0].parameters = {1, 0};
  for (const std::optional<Bytes> stated :
       {std::optional<Bytes>{}, std::optional(Bytes{40}), std::optional(Bytes{24})}) {
    chain.stages[0].parameter_gradient = stated;
    const Problem problem = problem_of(chain, gpus({}), {.optimizer = Optimizer::adam, .states = States::fp32});
    CHECK(bytes_of_kind(problem.graph, TensorKind::parameter_gradient) == stated.value_or(Bytes{40}));
    CHECK(bytes_of_kind(problem.graph, TensorKind::optimizer_state) == Bytes{80});
    REQUIRE(problem.index->updates.size() == 1);
    const Op& update = problem.graph[problem.index->updates[0]];
    CHECK(update.bytes_moved == Bytes{2 * 40 + 2 * 80} + stated.value_or(Bytes{40}));
  }
  chain.stages[0].parameter_gradient.reset();
  chain.parameters[0].trained = false;
  const Problem frozen = problem_of(chain, gpus({}), {.optimizer = Optimizer::adam});
  CHECK(frozen.index->updates.empty());
  CHECK(bytes_of_kind(frozen.graph, TensorKind::parameter_gradient) == Bytes{0});
}

TEST_CASE("states in fp32 need a known dtype", "[optimizer]") {
  const auto made =
      make_problem(ten_numbers("posit"), gpus({}), {.optimizer = Optimizer::adam, .states = States::fp32});
  REQUIRE(std::holds_alternative<std::string>(made));
  CHECK(std::get<std::string>(made) ==
        "states in fp32 need the number of elements of 'w', whose dtype 'posit' is unknown; states as_parameters take "
        "the bytes of the parameter");
}

TEST_CASE("a parameter's own dtype comes before the trace's", "[optimizer]") {
  Chain chain = ten_numbers("bf16");
  chain.parameters[0].dtype = "fp32";
  chain.parameters.push_back({"v", Bytes{6}});
  chain.stages[0].parameters.push_back(1);
  const Problem problem = problem_of(chain, gpus({}), {.optimizer = Optimizer::adam});
  CHECK(bytes_of_kind(problem.graph, TensorKind::optimizer_state) == Bytes{2 * 20 + 3 * 12});
  CHECK(problem.states == States::by_dtype);  // not the same for both
}

/// Which parameter's gradient each is, by name.
std::map<std::string, std::string> pairs(const Graph& graph) {
  std::map<std::string, std::string> found;
  const auto made = trained_parameters(graph);
  INFO((std::holds_alternative<std::string>(made) ? std::get<std::string>(made) : std::string()));
  REQUIRE(std::holds_alternative<std::vector<TrainedParameter>>(made));
  for (const auto& [parameter, gradients] : std::get<std::vector<TrainedParameter>>(made)) {
    for (const TensorId g : gradients) found[graph[g].name] = graph[parameter].name;
  }
  return found;
}

TEST_CASE("gradients find their parameters without names: by stage and size, and by the order of backward",
          "[optimizer]") {
  std::size_t matched = 0;
  for (const RandomCase seed : random_cases(1, 200)) {
    INFO("seed " << seed);
    Graph graph = random_graph(seed, 1 + seed % 14);
    const bool has_stages = seed % 2 == 0;
    std::map<std::string, std::string> truth;
    std::size_t next = 0;
    for (Tensor& tensor : graph.tensors) {
      if (tensor.kind != TensorKind::parameter_gradient) continue;
      const std::string name = "mm." + std::to_string(next++);
      truth[name] = tensor.name.substr(std::string("gradient of ").size());
      tensor.name = name;
    }
    for (Op& op : graph.ops) {
      if (!has_stages) op.stage = 0;
    }
    CHECK(pairs(graph) == truth);
    matched += truth.size();
  }
  if (all_cases()) CHECK(matched > 500);
}

TEST_CASE("what says whose gradient it is comes before order, and what is left in doubt is refused", "[optimizer]") {
  Graph graph;
  graph.tensors = {{"x", TensorKind::input, Bytes{4}, {0}, {}, ""},
                   {"u", TensorKind::parameter, Bytes{8}, {1}, {}, ""},
                   {"v", TensorKind::parameter, Bytes{8}, {2}, {}, ""},
                   {"y", TensorKind::activation, Bytes{4}, {3}, {}, ""},
                   {"a", TensorKind::parameter_gradient, Bytes{8}, {4}, {}, ""},
                   {"b", TensorKind::parameter_gradient, Bytes{8}, {5}, {}, ""}};
  graph.storages = 6;
  Op forward, backward;
  forward.name = "f";
  forward.inputs = {{0}, {1}, {2}};
  forward.outputs = {{3}};
  backward.name = "b";
  backward.phase = Phase::backward;
  backward.inputs = {{3}};
  backward.outputs = {{4}, {5}};
  forward.duration = backward.duration = Seconds{1};
  graph.ops = {forward, backward};
  CHECK(pairs(graph) == std::map<std::string, std::string>{{"a", "u"}, {"b", "v"}});
  graph.tensors[4].gradient_of = TensorId{2};
  CHECK(pairs(graph) == std::map<std::string, std::string>{{"a", "v"}, {"b", "u"}});
  graph.tensors[4].gradient_of.reset();
  graph.tensors[4].name = "v.grad";
  CHECK(pairs(graph) == std::map<std::string, std::string>{{"v.grad", "v"}, {"b", "u"}});
  graph.tensors[4].name = "a";
  graph.ops[1].outputs = {{4}};
  graph.tensors.pop_back();
  graph.storages = 5;
  const auto made = make_problem(graph, gpus({}), {.optimizer = Optimizer::adam});
  REQUIRE(std::holds_alternative<std::string>(made));
  CHECK(std::get<std::string>(made) ==
        "no updates can be made: it is not known which parameter 'a' is the gradient of: 2 of its size are left ('u', "
        "...) for 1 gradients; say it in the trace, with gradient_of");
}

TEST_CASE("updates are made for a graph that has none, and stay where it has some", "[optimizer]") {
  for (const RandomCase seed : random_cases(1, 60)) {
    INFO("seed " << seed);
    const Graph plain = random_graph(seed, 1 + seed % 10);
    const Bytes trained = bytes_of_kind(plain, TensorKind::parameter_gradient);
    if (trained == Bytes{0}) continue;
    const Problem problem = problem_of(with_views(plain, seed), gpus({}), {.optimizer = Optimizer::adam});
    std::size_t updates = 0;
    for (const Op& op : problem.graph.ops) updates += op.phase == Phase::update ? 1 : 0;
    std::size_t gradients = 0;
    for (const Tensor& tensor : plain.tensors) gradients += tensor.kind == TensorKind::parameter_gradient ? 1 : 0;
    CHECK(updates == gradients);
    CHECK(bytes_of_kind(problem.graph, TensorKind::optimizer_state) == 2 * trained);
    const Problem again = problem_of(problem.graph, gpus({}), {.optimizer = Optimizer::momentum});
    CHECK(again.graph == problem.graph);
    CHECK(!again.states);
  }
}

}  // namespace
}  // namespace plimsoll
