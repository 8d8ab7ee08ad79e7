// Graphs of Piper: what the import makes of them, and what each complaint says.

#include <catch2/catch.hpp>

#include "tests/bad_input.h"
#include "traces/imports/piper_graph.h"

namespace plimsoll {
namespace {

const std::string two_nodes =
    R"({"maxDevices": 8, "maxMemoryPerDevice": 8e9, "bandwidth": 25e9, "mbsInBatch": 16, "nodes": [
  {"id": 5, "name": "a", "TMPCs": {"1": [
    {"id": "vanilla", "timePerSample": 0.5, "parameterSize": 10.0, "memoryUsageA": 20.4, "memoryUsageB": 30.0,
     "syncTimeFw": {}, "syncTimeBw": {"9": 0.0}}], "2": [
    {"id": "vanilla", "timePerSample": 0.3, "parameterSize": 5.0, "memoryUsageA": 10.0, "memoryUsageB": 15.0,
     "syncTimeFw": {}, "syncTimeBw": {"9": 7.0}}]}},
  {"id": 9, "name": "b", "TMPCs": {"1": [
    {"id": "vanilla", "timePerSample": 1, "parameterSize": 0, "memoryUsageA": 0, "memoryUsageB": 0,
     "syncTimeFw": {"5": 3.0}, "syncTimeBw": {}}]}}],
 "edges": [{"sourceId": 5, "destId": 9, "communicationCost": 64.0}]})";

TEST_CASE("nodes of Piper become layers with an option a way to run them", "[piper_graph]") {
  const LayerTable table = parse_piper_graph(two_nodes, "folder/two.json");
  CHECK(table.name == "two");
  CHECK(table.devices == 8U);
  CHECK(table.micro_batches == 16U);
  CHECK(table.memory == Bytes{8'000'000'000});
  CHECK(table.bandwidth == BytesPerSecond{25e9});
  REQUIRE(table.layers.size() == 2);
  REQUIRE(table.layers[0].options.size() == 2);
  const LayerOption& shared = table.layers[0].options[1];
  CHECK(shared.devices == 2);
  CHECK(shared.forward == Seconds{0.3});
  CHECK(shared.sent == std::vector<std::pair<std::uint32_t, Bytes>>{{0, Bytes{7}}});
  CHECK(table.layers[0].options[0].kept == Bytes{20});
  CHECK(table.layers[1].options[0].sent == std::vector<std::pair<std::uint32_t, Bytes>>{{0, Bytes{3}}});
  CHECK(table.edges == std::vector<LayerEdge>{{0, 1, Bytes{64}, {}}});
  CHECK(parse_layer_table(layer_table_text(table), "written.json") == table);
}

std::string piper_complaint(const std::string& what, const std::string& instead) {
  std::string text = two_nodes;
  text.replace(text.find(what), what.size(), instead);
  return complaint_of([&] { parse_piper_graph(text, "two.json"); });
}

TEST_CASE("malformed graphs of Piper are refused where they are wrong", "[piper_graph]") {
  CHECK(piper_complaint("\"2\": [", "\"two\": [") ==
        "two.json:4:59: nodes[0].TMPCs.two: the key is not a number of devices\n"
        "two.json:4:59: nodes[0].TMPCs.two: expected 1 to 1000000 devices as the key");
  CHECK(piper_complaint("\"2\": [", "\"0\": [") ==
        "two.json:4:57: nodes[0].TMPCs.0: expected 1 to 1000000 devices as the key");
  CHECK(piper_complaint("{\"5\": 3.0}", "{\"4\": 3.0}") ==
        "two.json:7:35: nodes[1].TMPCs: bytes for an edge from 4 to 9, which is not there");
  CHECK(piper_complaint("\"destId\": 9", "\"destId\": 8") ==
        "two.json:10:38: edges[0].destId: no node of id 8\n"
        "two.json:2:35: nodes[0].TMPCs: bytes for an edge from 5 to 9, which is not there\n"
        "two.json:7:35: nodes[1].TMPCs: bytes for an edge from 5 to 9, which is not there");
  CHECK(piper_complaint("\"mbsInBatch\": 16", "\"mbsInBatch\": 0") ==
        "two.json:1:79: mbsInBatch: expected a whole number from 1 to 1000000");
  CHECK(piper_complaint("25e9", "0") == "two.json:1:59: bandwidth: expected more than 0 bytes a second");
  CHECK(piper_complaint("\"id\": 9", "\"id\": 5").starts_with("two.json:7:10: nodes[1].id: a second node of id 5"));
  CHECK(piper_complaint("\"memoryUsageB\": 30.0,", "") ==
        "two.json:3:5: nodes[0].TMPCs.1[0]: missing key 'memoryUsageB'");
}

}  // namespace
}  // namespace plimsoll
