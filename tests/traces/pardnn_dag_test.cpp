// Graphs of ParDNN's and of Graphviz: what the imports make of them, and what each complaint says.

#include "traces/imports/pardnn_dag.h"

#include <catch2/catch.hpp>

#include <set>

#include "tests/bad_input.h"
#include "traces/imports/dot_graph.h"
#include "traces/trace_file.h"

namespace plimsoll {
namespace {

using Groups = std::vector<std::vector<OpId>>;

const std::string diamond_dag =
    "# dag1 4 4 kind=diamond profiled\r\n"
    "0 F 2 0 40 7\n"
    "1 F 3.5 100 20 -1\n"
    "\n"
    "  2 F 0\t0 0 3\n"
    "3 B 6 0 8 7\n"
    "0 1\n0 2\n1 3\n2 3\n";

std::string note_of(const Graph& graph, const std::string& key) {
  for (const auto& [name, text] : graph.source.notes) {
    if (name == key) return text;
  }
  return "";
}

TEST_CASE("rows of a dag become ops with an output, a parameter and groups that share a device", "[pardnn_dag]") {
  const Graph graph = parse_pardnn_dag(diamond_dag, "folder/diamond.dag");
  CHECK(graph.name == "diamond");
  REQUIRE(graph.ops.size() == 4);
  REQUIRE(graph.tensors.size() == 5);
  CHECK(graph.ops[1].name == "op 1");
  CHECK(graph.ops[1].duration->value == Approx(3.5e-6));
  CHECK(graph.ops[1].inputs == std::vector{TensorId{0}, TensorId{1}});
  CHECK(graph[TensorId{1}].kind == TensorKind::parameter);
  CHECK(graph[TensorId{1}].bytes == Bytes{100});
  CHECK(graph.ops[1].outputs == std::vector{TensorId{2}});
  CHECK(graph[TensorId{2}].bytes == Bytes{20});
  CHECK(graph.ops[2].inputs == std::vector{TensorId{0}});
  CHECK(graph[graph.ops[2].outputs[0]].bytes == Bytes{0});
  CHECK(graph.ops[3].inputs == std::vector{TensorId{2}, TensorId{3}});
  CHECK(graph.ops[3].phase == Phase::backward);
  CHECK(graph[TensorId{4}].kind == TensorKind::gradient);
  CHECK(graph.colocate == Groups{{OpId{0}, OpId{3}}});  // a lone member of group 3 is no group
  CHECK(note_of(graph, "remarks") == "kind=diamond profiled");
  CHECK(note_of(graph, "phases") == "");
  CHECK(parse_trace(trace_text(Trace{graph}), "written.json") == Trace{graph});
}

TEST_CASE("groups of a dag are counted from 0, and its edges end at its ops", "[pardnn_dag]") {
  const std::string ops = "# dag1 2 1\n0 F 1 0 4 0\n1 F 2 0 4 0\n";
  CHECK(parse_pardnn_dag(ops + "0 1\n", "t.dag").colocate == Groups{{OpId{0}, OpId{1}}});
  CHECK(complaint_of([&] { parse_pardnn_dag(ops + "0 2\n", "t.dag"); }) ==
        "t.dag:4:3: dst: expected a whole number from 0 to 1, found '2'");
}

TEST_CASE("ops of a dag are put in an order in which they can be computed", "[pardnn_dag]") {
  const Graph graph = parse_pardnn_dag("# dag1 3 2\n0 F 1 0 4 -1\n1 F 2 0 4 -1\n2 F 3 0 4 -1\n2 0\n0 1\n", "back.dag");
  CHECK(graph.ops[0].name == "op 2");
  CHECK(graph.ops[1].name == "op 0");
  CHECK(graph.ops[2].name == "op 1");
  CHECK(note_of(graph, "phases") == "the file calls all ops forward, whatever they are");
}

const std::string small_dot = R"(// made by hand
strict digraph "small net" {
  rankdir=LR; graph [color=red];
  node [shape=box, weight=5];
  a [label="input" size="2 kB" phase=forward]
  b [time="3 ms", parameters=64, colocate=left];
  c [device=host, colocate=left, size=8];
  "d 1" [weight=0.5, phase="back" + "ward"];
  edge [color="#ffffff"];
  a:out -> b -> "d 1" [bytes=100];  /* each of them */
  a -> c; c -> "d 1" [weight="1 KiB"];
  a -> "d 1" [bytes=100];
}
)";

TEST_CASE("nodes of a drawn graph become ops, edges of equal bytes one value", "[dot_graph]") {
  const Graph graph = parse_dot_graph(small_dot, "folder/net.dot");
  CHECK(graph.name == "small net");
  REQUIRE(graph.ops.size() == 4);
  CHECK(graph.ops[0].name == "input");
  CHECK(graph.ops[0].duration->value == Approx(5e-6));
  CHECK(graph.ops[1].duration->value == Approx(3e-3));
  CHECK(graph.ops[3].duration->value == Approx(0.5e-6));
  REQUIRE(graph.ops[0].outputs.size() == 2);  // 100 B for b and d, its size for c
  CHECK(graph[graph.ops[0].outputs[0]].bytes == Bytes{100});
  CHECK(graph[graph.ops[0].outputs[1]].bytes == Bytes{2000});
  CHECK(graph.ops[2].inputs == std::vector{graph.ops[0].outputs[1]});
  CHECK(graph[graph.ops[2].outputs[0]].bytes == Bytes{1024});
  CHECK(graph.ops[3].inputs == std::vector{graph.ops[1].outputs[0], graph.ops[2].outputs[0], graph.ops[0].outputs[0]});
  CHECK(graph[graph.ops[1].inputs[1]].bytes == Bytes{64});
  CHECK(graph[graph.ops[1].inputs[1]].kind == TensorKind::parameter);
  CHECK(graph.ops[3].phase == Phase::backward);
  CHECK(graph.ops[2].attributes == std::vector<std::pair<std::string, std::string>>{{"device", "host"}});
  CHECK(graph.ops[1].attributes.empty());
  CHECK(graph.colocate == Groups{{OpId{1}, OpId{2}}});
  CHECK(parse_trace(trace_text(Trace{graph}), "written.json") == Trace{graph});
}

TEST_CASE("a label that stands for the name is none", "[dot_graph]") {
  const Graph graph =
      parse_dot_graph(R"(digraph { node [label="\N", weight=1, size=4]; a; b [label="last"]; a -> b })", "t.dot");
  REQUIRE(graph.ops.size() == 2);
  CHECK(graph.ops[0].name == "a");
  CHECK(graph.ops[1].name == "last");
}

TEST_CASE("a graph without weights, as dagP reads it, has ops and values of 1", "[dot_graph]") {
  const Graph graph = parse_dot_graph("digraph G {\n0;\n1 [label=last];\n0 -> 1;\n0 -> 2;\n2 -> 1;\n}\n", "net.dot");
  REQUIRE(graph.ops.size() == 3);
  std::set<std::string> names;
  for (const Op& op : graph.ops) {
    names.insert(op.name);
    CHECK(op.duration->value == Approx(1e-6));
    for (const TensorId t : op.inputs) CHECK(graph[t].bytes == Bytes{1});
  }
  CHECK(names == std::set<std::string>{"0", "2", "last"});
  const Graph weighed = parse_dot_graph("digraph { a [weight=3]; b [weight=2]; a -> b; }", "net.dot");
  CHECK(weighed.ops[0].duration->value == Approx(3e-6));
  CHECK(weighed[weighed.ops[0].outputs.at(0)].bytes == Bytes{1});
  CHECK(complaint_of([] { parse_dot_graph("digraph { a; b [weight=2]; a -> b; }", "net.dot"); }) ==
        "net.dot:1:11: node 'a' has neither time nor weight");
  CHECK(complaint_of([] {
          parse_dot_graph("digraph { a [weight=1]; b [weight=2]; a -> b; b -> a [color=red]; }", "n");
        }).starts_with("n:1:39: the edge from 'a' to 'b' has neither bytes nor weight"));
}

TEST_CASE("every broken dag and drawn graph is refused with the message beside it", "[pardnn_dag][dot_graph]") {
  const std::string folder = "tests/bad_input/imports";
  const std::vector<std::filesystem::path> dags = files_in(folder, ".dag"), drawn = files_in(folder, ".dot");
  CHECK(dags.size() >= 15);
  CHECK(drawn.size() >= 18);
  for (const std::filesystem::path& file : dags) {
    INFO(file.string());
    CHECK(complaint_of([&] { read_pardnn_dag(file); }) == expected_complaint(file));
  }
  for (const std::filesystem::path& file : drawn) {
    INFO(file.string());
    CHECK(complaint_of([&] { read_dot_graph(file); }) == expected_complaint(file));
  }
}

TEST_CASE("a dag or drawn graph that is cut off anywhere is refused or read, and sizes do not overflow",
          "[dot_graph]") {
  for (std::size_t length = 0; length < small_dot.size() - 2; ++length) {
    INFO(length);
    CHECK(complaint_of([&] { parse_dot_graph(small_dot.substr(0, length), "t.dot"); }).starts_with("t.dot:"));
  }
  for (std::size_t length = 0; length < diamond_dag.size() - 2; ++length) {
    INFO(length);
    CHECK(complaint_of([&] { parse_pardnn_dag(diamond_dag.substr(0, length), "t.dag"); }).starts_with("t.dag:"));
  }
  std::string many = "# dag1 1100 0\n";
  for (int i = 0; i < 1100; ++i) many += std::to_string(i) + " F 1 0 4503599627370496 -1\n";
  CHECK(complaint_of([&] { parse_pardnn_dag(many, "t.dag"); }) ==
        "t.dag: absurdly large: the sum of all sizes does not fit 62 bits");
}

TEST_CASE("a graph of a hundred thousand ops in a row is read without recursion, circles of it too", "[pardnn_dag]") {
  constexpr int ops = 100'000;
  std::string text = "# dag1 100000 100000\n";
  for (int i = 0; i < ops; ++i) text += std::to_string(i) + " F 1 0 4 -1\n";
  for (int i = 1; i < ops; ++i) text += std::to_string(i - 1) + " " + std::to_string(i) + "\n";
  CHECK(complaint_of([&] { parse_pardnn_dag(text + "99999 0\n", "t.dag"); }) ==
        "t.dag:100002:1: cyclic, no order exists: 'op 0' -> 'op 1' -> 'op 2' -> 'op 3' -> 'op 4' -> 'op 5' -> 'op 6' "
        "-> 'op 7' -> ... -> 'op 0'");
  CHECK(parse_pardnn_dag(text + "0 99999\n", "t.dag").ops.size() == std::size_t{ops});
}

}  // namespace
}  // namespace plimsoll
