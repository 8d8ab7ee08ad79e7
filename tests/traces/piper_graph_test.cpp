// Graphs of Piper: what the import makes of them, and what each complaint says.

#include <catch2/catch.hpp>

#include "tests/bad_input.h"
#include "traces/imports/piper_graph.h"
#include "traces/trace_file.h"

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

TEST_CASE("as a chain, nodes of Piper run on one device, and only a forward again is recomputation", "[piper_graph]") {
  // b reads 6 bytes and keeps 10, or the 6 with `again` more seconds.
  const auto chain_with = [](const std::string& kept, const std::string& again) {
    return parse_piper_chain(
        R"({"maxDevices": 8, "maxMemoryPerDevice": 8e9, "bandwidth": 25e9, "mbsInBatch": 16, "nodes": [
      {"id": 1, "name": "a", "TMPCs": {"1": [{"id": "vanilla", "timePerSample": 3, "parameterSize": 10, "memoryUsageA": 9,
        "memoryUsageB": 20, "syncTimeFw": {}, "syncTimeBw": {}}]}},
      {"id": 2, "name": "b", "TMPCs": {"1": [{"id": "vanilla", "timePerSample": 5, "parameterSize": 1, "memoryUsageA": 10,
        "memoryUsageB": 7, "syncTimeFw": {}, "syncTimeBw": {}}, {"id": "activation recomp", "timePerSample": )" +
            again + R"(,
        "parameterSize": 1, "memoryUsageA": )" +
            kept + R"(, "memoryUsageB": 7, "syncTimeFw": {}, "syncTimeBw": {}}],
        "2": [{"id": "vanilla", "timePerSample": 3, "parameterSize": 1, "memoryUsageA": 5, "memoryUsageB": 2,
        "syncTimeFw": {}, "syncTimeBw": {}}]}}],
      "edges": [{"sourceId": 1, "destId": 2, "communicationCost": 6}]})",
        "two.json");
  };
  const auto note = [](const Chain& chain, const std::string& key) {
    for (const auto& [name, text] : chain.source.notes) {
      if (name == key) return text;
    }
    return std::string();
  };
  const Chain chain = chain_with("6", "6.5");
  REQUIRE(chain.stages.size() == 2);
  const Stage &a = chain.stages[0], &b = chain.stages[1];
  CHECK(a.forward == Seconds{1});  // a third
  CHECK(a.backward == Seconds{2});
  CHECK(a.saved == Bytes{9});  // its output among them
  CHECK(a.keeps_output);
  CHECK(b.forward == Seconds{1.5});
  CHECK(b.backward == Seconds{3.5});
  CHECK(b.saved == Bytes{4});  // without what it reads
  CHECK(b.tensors == StageTensors{{0}, {0}});
  // Of fixed bytes, what parameters and their gradients leave.
  CHECK(chain.parameters == std::vector<Parameter>{{.name = "a", .bytes = Bytes{10}},
                                                   {.name = "b", .bytes = Bytes{1}},
                                                   {.name = "b.fixed", .bytes = Bytes{5}, .trained = false}});
  CHECK(note(chain, "left_out") == "ways to run layers: 'vanilla' on 2 devices (of 1 layer)");
  CHECK(note(chain, "devices") == "8");
  CHECK(note(chain, "micro_batches") == "16");
  CHECK(note(chain, "memory_bytes") == "8000000000");
  CHECK(note(chain, "bandwidth_bytes_per_s") == "25000000000");
  CHECK(parse_trace(trace_text(Trace{chain}), "written.json") == Trace{chain});
  const std::string both =
      "ways to run layers: 'activation recomp' on 1 device (of 1 layer), 'vanilla' on 2 devices (of 1 layer)";
  CHECK(note(chain_with("5", "6.5"), "left_out") == both);
  CHECK(note(chain_with("6", "5"), "left_out") == both);
  CHECK(chain_with("5", "6.5").stages[1].saved == Bytes{10});
}

TEST_CASE("a graph of Piper whose node needs several devices is no chain", "[piper_graph]") {
  std::string text = two_nodes;
  text.replace(text.find("\"1\": ["), 4, "\"4\":");
  CHECK(complaint_of([&] { parse_piper_chain(text, "two.json"); }) == "two: layer 'a' has no way to run on one device");
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
