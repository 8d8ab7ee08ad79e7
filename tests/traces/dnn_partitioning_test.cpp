// Graphs of dnn-partitioning: what the import makes of them, and what each complaint says.

#include <catch2/catch.hpp>

#include "tests/bad_input.h"
#include "traces/imports/dnn_partitioning.h"
#include "traces/trace_file.h"

namespace plimsoll {
namespace {

const std::string placement = R"({"maxSizePerFPGA": 1000.0, "maxFPGAs": 2, "maxCPUs": 1, "nodes": [
  {"name": "a", "id": 7, "supportedOnFpga": 1, "cpuLatency": 20, "fpgaLatency": 2.5, "isBackwardNode": 0,
   "colorClass": 3, "size": 100.0},
  {"id": -1, "layerId": "x", "supportedOnFpga": false, "cpuLatency": 1, "fpgaLatency": 0, "isBackwardNode": true,
   "colorClass": null, "size": 0}],
 "edges": [{"sourceId": 7, "destId": -1, "cost": 0.5, "size": 64}]})";

TEST_CASE("nodes of dnn-partitioning become layers with times on a device and on a host", "[dnn_partitioning]") {
  const LayerTable table = parse_dnn_partitioning(placement, "folder/small.json");
  CHECK(table.name == "small");
  CHECK(table.devices == 2U);
  CHECK(table.hosts == 1U);
  CHECK(table.memory == Bytes{1000});
  REQUIRE(table.layers.size() == 2);
  CHECK(table.layers[0].together == 3U);
  CHECK(table.layers[0].host == Seconds{0.02});
  CHECK(table.layers[0].options.at(0).forward.value == Approx(2.5e-3));
  CHECK(table.layers[0].options.at(0).fixed == Bytes{100});
  CHECK(table.layers[1].name == "node -1");
  CHECK(table.layers[1].backward);
  CHECK(table.layers[1].options.empty());
  CHECK(!table.layers[1].together);
  CHECK(table.edges == std::vector<LayerEdge>{{0, 1, Bytes{64}, Seconds{0.0005}}});
  CHECK(parse_layer_table(layer_table_text(table), "written.json") == table);
}

std::string placement_complaint(const std::string& what, const std::string& instead) {
  std::string text = placement;
  text.replace(text.find(what), what.size(), instead);
  return complaint_of([&] { parse_dnn_partitioning(text, "small.json"); });
}

TEST_CASE("malformed graphs of dnn-partitioning are refused where they are wrong", "[dnn_partitioning]") {
  CHECK(placement_complaint("\"id\": -1", "\"id\": 7") ==
        "small.json:4:10: nodes[1].id: a second node of id 7\nsmall.json:6:38: edges[0].destId: no node of id -1");
  CHECK(placement_complaint("null", "\"red\"") ==
        "small.json:5:18: nodes[1].colorClass: expected a whole number or null, found \"red\"");
  CHECK(placement_complaint("\"maxFPGAs\": 2", "\"maxFPGAs\": 0") ==
        "small.json:1:40: maxFPGAs: expected a whole number from 1 to 1000");
  CHECK(placement_complaint("64}]", R"(64}, {"sourceId": 7, "destId": -1, "cost": 0.25}])") ==
        "small.json:6:106: edges[1].cost: another cost than an earlier edge of the same source");
  CHECK(placement_complaint("\"destId\": -1", "\"destId\": 7") == "small.json:6:11: edges: they form a circle");
  CHECK(placement_complaint("\"cost\": 0.5, ", "") == "small.json:6:12: edges[0]: missing key 'cost'");
  CHECK(placement_complaint("\"maxCPUs\": 1, ", "") == "small.json:1:1: missing key 'maxCPUs'");
}

TEST_CASE("as a graph, nodes of dnn-partitioning are ops with a resident and values of their edges' sizes",
          "[dnn_partitioning]") {
  const Graph graph = parse_dnn_partitioning_graph(placement, "folder/small.json");
  CHECK(graph.name == "small");
  REQUIRE(graph.ops.size() == 2);
  const Op &a = graph.ops[0], &b = graph.ops[1];
  CHECK(a.name == "a");
  CHECK(a.duration->value == Approx(2.5e-3));
  CHECK(graph[a.inputs.at(0)].kind == TensorKind::parameter);
  CHECK(graph[a.inputs.at(0)].bytes == Bytes{100});
  CHECK(graph[a.outputs.at(0)].bytes == Bytes{64});
  CHECK(a.attributes == std::vector<std::pair<std::string, std::string>>{{"host_s", "0.02"}});
  CHECK(b.inputs == a.outputs);
  CHECK(b.phase == Phase::backward);
  CHECK(b.duration->value == Approx(1e-3));
  CHECK(b.attributes == std::vector<std::pair<std::string, std::string>>{{"device", "host"}});
  CHECK(parse_trace(trace_text(Trace{graph}), "written.json") == Trace{graph});
}

TEST_CASE("a graph of dnn-partitioning needs sizes and no edge twice", "[dnn_partitioning]") {
  const auto complaint = [](const std::string& what, const std::string& instead) {
    std::string text = placement;
    text.replace(text.find(what), what.size(), instead);
    return complaint_of([&] { parse_dnn_partitioning_graph(text, "small.json"); });
  };
  CHECK(complaint(", \"size\": 64", "") ==
        "small.json:6:12: edges[0]: missing key 'size': a graph needs the bytes of its values");
  CHECK(complaint("64}]", R"(64}, {"sourceId": 7, "destId": -1, "cost": 0.5, "size": 4}])") ==
        "small.json:6:68: edges[1]: a second edge from 7 to -1");
}

}  // namespace
}  // namespace plimsoll
