// Synthetic graphs of training: their sizes and ratios, what depends on what, and what each complaint says.

#include "traces/models/synthetic_graphs.h"

#include <catch2/catch.hpp>

#include "tests/bad_input.h"
#include "traces/imports/graph_proportions.h"
#include "traces/models/op_networks.h"
#include "traces/trace_file.h"

namespace plimsoll {
namespace {

std::size_t ops_of_kind(const Graph& graph, std::string_view kind) {
  return static_cast<std::size_t>(std::ranges::count(graph.ops, kind, &Op::kind));
}

TEST_CASE("a graph's parallelism and communication are those of the arithmetic by hand", "[synthetic_graphs]") {
  // a, 10 us, makes 130 kB (1 us) for b, 20 us, and c, 30 us; d, 40 us, reads what they make (none, 26 us); an input
  // and a parameter are not sent. Work 100; sending 26 + 26 + 25 + 25 = 102; longest a c d: 10 + 26 + 30 + 25 + 40 =
  // 131.
  const Graph graph = std::get<Graph>(parse_trace(R"({"format": "plimsoll.trace.v1", "kind": "graph", "name": "n",
    "tensors": [{"name": "x", "kind": "input", "bytes": 5}, {"name": "w", "kind": "parameter", "bytes": 7},
      {"name": "a", "kind": "activation", "bytes": 130000}, {"name": "b", "kind": "activation", "bytes": 0},
      {"name": "c", "kind": "activation", "bytes": 0}, {"name": "d", "kind": "activation", "bytes": 9}],
    "ops": [{"name": "a", "phase": "forward", "time_s": 10e-6, "inputs": [0, 1], "outputs": [2]},
      {"name": "b", "phase": "forward", "time_s": 20e-6, "inputs": [2], "outputs": [3]},
      {"name": "c", "phase": "forward", "time_s": 30e-6, "inputs": [2], "outputs": [4]},
      {"name": "d", "phase": "forward", "time_s": 40e-6, "inputs": [3, 4], "outputs": [5]}]})",
                                                  "hand.json")
                                          .model);
  const GraphProportions found = proportions_of(graph);
  CHECK(found.edges == 4);
  CHECK(found.work.value == Approx(100e-6));
  CHECK(found.sending.value == Approx(102e-6));
  CHECK(found.critical_path.value == Approx(131e-6));
  CHECK(found.parallelism() == Approx(100.0 / 131));
  CHECK(found.communication() == Approx(102.0 / 100));
}

TEST_CASE("the backward of a network mirrors its forward", "[synthetic_graphs]") {
  // input -> conv(w) = a -> relu = b, also conv(w) of b = c; sum of b and c; loss.
  TrainingGraph made(1);
  const TrainingGraph::Weight w = made.weight("w", 1000);
  const TrainingGraph::Layer conv{.kind = "conv", .microseconds = 3, .bytes = 100};
  const TrainingGraph::Value a = made.weighted(conv, made.input(50), w);
  const TrainingGraph::Value b = made.op({.kind = "relu", .bytes = 100}, {a});
  const TrainingGraph::Value c = made.weighted(conv, b, w);
  const TrainingGraph::Value d = made.sum(1, {b, c});
  const Graph graph = std::move(made).trained({d}).graph;
  std::vector<std::string> kinds;
  for (const Op& op : graph.ops) kinds.push_back(op.kind);
  CHECK(kinds == std::vector<std::string>{"read", "conv", "relu", "conv", "add", "loss", "ones", "loss_grad",
                                          "conv_grad_weight", "conv_grad_input", "add_n", "relu_grad",
                                          "conv_grad_weight"});  // the input of the network has no gradient
  const Op &input_gradient = graph.ops[9], &whole = graph.ops[10], &relu = graph.ops[11];
  CHECK(graph.ops[7].inputs == std::vector{graph.ops[6].outputs[0], graph.ops[4].outputs[0]});
  CHECK(graph.ops[8].inputs == std::vector{graph.ops[7].outputs[0], graph.ops[2].outputs[0]});
  CHECK(input_gradient.inputs == std::vector{graph.ops[7].outputs[0], graph.ops[0].outputs[0]});
  CHECK(whole.inputs == std::vector{graph.ops[7].outputs[0], input_gradient.outputs[0]});  // through the sum, by conv
  CHECK(relu.inputs == std::vector{whole.outputs[0], graph.ops[1].outputs[0]});
  CHECK(graph.ops[8].outputs == graph.ops[12].outputs);  // one gradient, to which both add
  CHECK(graph[graph.ops[8].outputs[0]].kind == TensorKind::parameter_gradient);
  CHECK(graph[graph.ops[8].outputs[0]].gradient_of == graph.ops[0].inputs[0]);
  CHECK(graph[relu.outputs[0]].bytes == graph[graph.ops[1].outputs[0]].bytes);
}

struct Published {
  std::string_view reference;
  double ops, parallelism, communication;
};

TEST_CASE("default networks have the ops, parallelism and communication of the paper", "[synthetic_graphs]") {
  // ParDNN, tables 3 and 5.
  const Published paper = GENERATE(Published{"rnn", 10'578, 10.45, 14.5}, Published{"crn", 22'748, 49, 57},
                                   Published{"wrn", 187'742, 1.16, 13.02}, Published{"trn", 204'792, 2, 13.7},
                                   Published{"e3d", 55'756, 3.3, 1.12}, Published{"rnn:seed=7", 10'578, 10.45, 14.5});
  INFO(paper.reference);
  const Graph graph = synthetic_graph(paper.reference);
  const GraphProportions found = proportions_of(graph);
  CHECK(static_cast<double>(graph.ops.size()) == Approx(paper.ops).epsilon(0.02));
  CHECK(found.parallelism() == Approx(paper.parallelism).epsilon(0.001));
  CHECK(found.communication() == Approx(paper.communication).epsilon(0.001));
  CHECK(graph.name == paper.reference);
  CHECK(graph.source.notes.front().first == "synthetic");
}

TEST_CASE("networks of any size satisfy the reader of trace files", "[synthetic_graphs]") {
  for (const std::string reference :
       {"rnn:1,steps=1", "rnn:layers=2,steps=3,seed=5", "crn:filters=1,words=2", "wrn:2,slices=3",
        "trn:layers=1,heads=2", "e3d:steps=2,layers=1", "rnn:ops=400"}) {
    INFO(reference);
    const Trace trace = load_trace(reference);
    CHECK(source_of(trace).kind == Source::Kind::computed);
    CHECK(parse_trace(trace_text(trace), "again") == trace);
  }
}

TEST_CASE("a cell of the recurrent network has eight products and their sixteen gradients", "[synthetic_graphs]") {
  const Graph one = synthetic_graph("rnn:layers=2,steps=2");
  // Second step of each layer: 8; first steps, which have nothing to forget: 3 each. And the vocabulary's two.
  CHECK(ops_of_kind(one, "matmul") == 8 + 8 + 3 + 3 + 2);
  CHECK(ops_of_kind(one, "matmul_grad_weight") == 24);
  CHECK(ops_of_kind(one, "matmul_grad_input") == 24 - 4 - 3);  // of the network's inputs there is none
  CHECK(ops_of_kind(one, "read") == 2 * 8 + 1);
}

TEST_CASE("the number of ops, the ratios and the seed can be chosen", "[synthetic_graphs]") {
  const auto [reference, ops] = GENERATE(
      std::pair("rnn:ops=39074", 39'074.0), std::pair("rnn:ops=2000", 2000.0), std::pair("crn:ops=86663", 86'663.0),
      std::pair("wrn:ops=79742", 79'742.0), std::pair("trn:ops=40000", 40'000.0), std::pair("e3d:ops=40000", 40'000.0),
      std::pair("rnn:ops=20000,layers=2", 20'000.0), std::pair("rnn:ops=20000,steps=10", 20'000.0));
  INFO(reference);
  CHECK(static_cast<double>(synthetic_graph(reference).ops.size()) == Approx(ops).epsilon(0.03));
  const GraphProportions found = proportions_of(synthetic_graph("rnn:layers=4,dop=8,ccr=5"));
  CHECK(found.parallelism() == Approx(8).epsilon(0.001));
  CHECK(found.communication() == Approx(5).epsilon(0.001));
  CHECK(synthetic_graph("rnn:2,steps=3,seed=4") == synthetic_graph("rnn:2,steps=3,seed=4"));
  CHECK(synthetic_graph("rnn:2,steps=3,seed=4").ops != synthetic_graph("rnn:2,steps=3,seed=5").ops);
}

TEST_CASE("a wrong reference to a synthetic graph says what is wrong", "[synthetic_graphs]") {
  CHECK(complaint_of([] { load_trace("rnn:layer=3"); }) == "rnn:layer=3: layer: unknown key; did you mean 'layers'?");
  CHECK(complaint_of([] { load_trace("crn:0"); }) ==
        "crn:0: filters: expected a whole number from 1 to 100000, found '0'");
  CHECK(complaint_of([] { load_trace("wrn:dop=x"); }) ==
        "wrn:dop=x: dop: expected a number from 0.001 to 10000, found 'x'");
  CHECK(complaint_of([] { load_trace("trn:layers=100000,heads=100000"); }) ==
        "trn:layers=100000,heads=100000: about 651538461538 ops, expected at most 2000000");
  CHECK(complaint_of([] { load_trace("rnn:layers=2,steps=3,ops=400"); }) ==
        "rnn:layers=2,steps=3,ops=400: ops: given together with 'layers' and 'steps', which already determine it");
}

TEST_CASE("parallelism that no scaling gives is refused with what can be had", "[synthetic_graphs]") {
  const std::string complaint = complaint_of([] { load_trace("rnn:layers=1,steps=2,dop=40"); });
  CHECK(complaint.starts_with("rnn:layers=1,steps=2,dop=40: dop: these sizes allow no more than "));
  CHECK(complaint.ends_with(", found 40"));
}

TEST_CASE("help names every network of ops with its keys and defaults", "[synthetic_graphs]") {
  const std::vector<std::string> help = synthetic_graph_help();
  REQUIRE(help.size() == 5);
  CHECK(help[0] == "rnn:layers=8,steps=28,ops=free,dop=10.45,ccr=14.5,seed=1");
  CHECK(is_synthetic_graph("trn:layers=2"));
  CHECK_FALSE(is_synthetic_graph("transformer"));
}

}  // namespace
}  // namespace plimsoll
