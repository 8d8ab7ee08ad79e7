// Graphs of nodes with costs: what the import makes of them, and what each complaint says.

#include <catch2/catch.hpp>

#include "tests/bad_input.h"
#include "traces/imports/checkmate_graph.h"
#include "traces/trace_file.h"

namespace plimsoll {
namespace {

const std::string two_layers = R"({"name": "two layers", "nodes": [
  {"name": "a", "bytes": 40, "cost": 2, "backward": false},
  {"name": "b", "bytes": 20, "cost": 3, "backward": false},
  {"name": "b grad", "bytes": 20, "cost": 6, "backward": true},
  {"name": "a grad", "bytes": 40, "cost": 4.5, "backward": true}],
 "edges": [[0, 1], [1, 2], [0, 3], [2, 3]], "total_cost": 15.5})";

TEST_CASE("nodes become ops with one output, costs microseconds, edges inputs", "[checkmate_graph]") {
  const Graph graph = parse_checkmate_graph(two_layers, "two.json");
  CHECK(graph.name == "two layers");
  REQUIRE(graph.ops.size() == 4);
  CHECK(graph.ops[0].inputs.empty());
  CHECK(graph.ops[3].inputs == std::vector{TensorId{0}, TensorId{2}});
  CHECK(graph.ops[3].duration->value == Approx(4.5e-6));
  CHECK(graph.ops[1].phase == Phase::forward);
  CHECK(graph.ops[2].phase == Phase::backward);
  CHECK(graph.tensors[1].bytes == Bytes{20});
  CHECK(graph.tensors[1].kind == TensorKind::activation);
  CHECK(graph.tensors[2].kind == TensorKind::gradient);
  CHECK(graph.storages == 4);
  CHECK(graph.source.notes.back() == std::pair<std::string, std::string>{"total_cost", "15.5"});
  CHECK(parse_trace(trace_text(Trace{graph}), "written.json") == Trace{graph});
}

std::string complaint(std::string text, const std::string& what, const std::string& instead) {
  text.replace(text.find(what), what.size(), instead);
  return complaint_of([&] { parse_checkmate_graph(text, "two.json"); });
}

TEST_CASE("malformed graphs of nodes with costs are refused where they are wrong", "[checkmate_graph]") {
  CHECK(complaint(two_layers, "[0, 1]", "[1, 0]") ==
        "two.json:6:12: edges[0]: nodes stand in the order of computation, expected an edge to a later node, found 1 "
        "to 0");
  CHECK(complaint(two_layers, "[2, 3]", "[2, 4]") ==
        "two.json:6:40: edges[3][1]: no such node, expected an index below 4, found 4");
  CHECK(complaint(two_layers, "[2, 3]", "[2, 3, 1]") ==
        "two.json:6:36: edges[3]: expected two nodes, from and to, found 3");
  CHECK(complaint(two_layers, "[2, 3]", "[0, 3]") == "two.json:6:36: edges[3]: a second edge from 0 to 3");
  CHECK(complaint(two_layers, "\"cost\": 2", "\"time\": 2") ==
        "two.json:2:30: nodes[0].time: unknown key\ntwo.json:2:3: nodes[0]: missing key 'cost'");
}

}  // namespace
}  // namespace plimsoll
