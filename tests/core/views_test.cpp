#include "sim/ops/views.h"

#include <catch2/catch.hpp>

#include "tests/generate/problems.h"
#include "tests/generate/views.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

std::vector<std::string> names(const Graph& graph, const std::vector<TensorId>& tensors) {
  std::vector<std::string> list;
  for (const TensorId t : tensors) list.push_back(graph[t].name);
  return list;
}

struct Small {
  Graph graph;

  TensorId tensor(std::string name, TensorKind kind, std::uint32_t storage, std::int64_t bytes = 4) {
    graph.tensors.push_back({std::move(name), kind, Bytes{bytes}, {storage}, {}, ""});
    graph.storages = std::max(graph.storages, storage + 1);
    return id_at<TensorId>(graph.tensors.size() - 1);
  }
  Op& op(std::string name, Phase phase, std::vector<TensorId> inputs, std::vector<TensorId> outputs) {
    Op& made = graph.ops.emplace_back();
    made.name = std::move(name);
    made.phase = phase;
    made.duration = Seconds{1};
    made.inputs = std::move(inputs);
    made.outputs = std::move(outputs);
    return made;
  }
};

TEST_CASE("without views and second names the graph is the one that they were put into", "[views]") {
  std::size_t views = 0;
  for (const RandomCase seed : random_cases(1, 400)) {
    INFO("seed " << seed);
    const Graph plain = random_graph(seed, 1 + seed % 12);
    const Graph many = with_views(plain, seed);
    const Graph found = without_views(many).graph;
    REQUIRE(found.ops.size() == many.ops.size());
    std::size_t next = 0;
    for (std::size_t o = 0; o < found.ops.size(); ++o) {
      const Op& op = found.ops[o];
      REQUIRE(op.is_view == (many.ops[o].kind == "view"));
      if (op.is_view) {
        CHECK(op.inputs.empty());
        CHECK(op.outputs.empty());
        ++views;
        continue;
      }
      REQUIRE(next < plain.ops.size());
      const Op& expected = plain.ops[next++];
      CHECK(op.name == expected.name);
      CHECK(op.duration == expected.duration);
      CHECK(op.workspace == expected.workspace);
      CHECK(names(found, op.inputs) == names(plain, expected.inputs));
      CHECK(names(found, op.outputs) == names(plain, expected.outputs));
      for (std::size_t k = 0; k < op.outputs.size(); ++k) {
        CHECK(found[op.outputs[k]].kind == plain[expected.outputs[k]].kind);
      }
    }
    CHECK(next == plain.ops.size());
    for (const TensorKind kind : {TensorKind::input, TensorKind::parameter, TensorKind::activation,
                                  TensorKind::gradient, TensorKind::parameter_gradient}) {
      CHECK(bytes_of_kind(found, kind) == bytes_of_kind(plain, kind));
    }
  }
  if (all_cases()) CHECK(views > 1000);
}

TEST_CASE("a graph without views and second names stays as it is", "[views]") {
  const Graph plain = random_graph(7, 12);
  CHECK(without_views(plain).graph == plain);
}

TEST_CASE("what is read through a view after its storage was overwritten is the new value", "[views]") {
  Small s;
  const TensorId x = s.tensor("x", TensorKind::input, 0);
  const TensorId a = s.tensor("a", TensorKind::activation, 1), v = s.tensor("v", TensorKind::activation, 1);
  const TensorId u = s.tensor("u", TensorKind::activation, 1), b = s.tensor("b", TensorKind::activation, 1);
  const TensorId y = s.tensor("y", TensorKind::activation, 2), g = s.tensor("g", TensorKind::gradient, 3);
  s.op("f", Phase::forward, {x}, {a});
  s.op("view", Phase::forward, {a}, {v});
  s.op("chunk", Phase::forward, {v}, {u});
  s.op("relu_", Phase::forward, {u}, {b}).mutates = {u};
  s.op("h", Phase::forward, {v, b}, {y});
  s.op("backward", Phase::backward, {y, v}, {g});
  const WithoutViews made = without_views(s.graph);
  CHECK(made.view_time == Seconds{2});
  CHECK(made.graph.ops[3].inputs == std::vector{a});
  CHECK(made.graph.ops[3].mutates == std::vector{a});
  CHECK(made.graph.ops[4].inputs == std::vector{b});
  CHECK(made.graph.ops[5].inputs == std::vector{y, b});
}

TEST_CASE("a gradient that is scaled in place and then shown as the parameter's gradient is that from the start",
          "[views]") {
  Small s;
  const TensorId x = s.tensor("x", TensorKind::input, 0), w = s.tensor("w", TensorKind::parameter, 1);
  const TensorId b = s.tensor("b", TensorKind::gradient, 2), r = s.tensor("r", TensorKind::gradient, 2);
  const TensorId g = s.tensor("g", TensorKind::parameter_gradient, 2);
  s.op("mm", Phase::backward, {x, w}, {b});
  s.op("div_", Phase::backward, {b}, {r}).mutates = {b};
  s.op("t", Phase::backward, {r}, {g});
  const Graph made = without_views(s.graph).graph;
  CHECK(made.ops[0].outputs == std::vector{g});
  CHECK(made.ops[1].inputs.empty());
  CHECK(made.ops[1].mutates.empty());
  CHECK(made.ops[1].outputs == std::vector{g});
  CHECK(made.ops[2].is_view);
}

}  // namespace
}  // namespace plimsoll
