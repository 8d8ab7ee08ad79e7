// Tables of layers: every key there and back, and what each complaint says.

#include <catch2/catch.hpp>

#include "tests/bad_input.h"
#include "traces/layer_table.h"

namespace plimsoll {
namespace {

const std::string stated = R"({"format": "plimsoll.layers.v1", "name": "two", "source": {"of": "hand"}, "devices": 4,
 "hosts": 0, "micro_batches": 8, "memory_bytes": 1000, "bandwidth_bytes_per_s": 2.5e9, "layers": [
  {"name": "a", "count": 3, "place": "first", "together": 7, "host_s": 4, "options": [
    {"name": "plain", "forward_s": 1, "backward_s": 2, "parameter_bytes": 5, "kept_bytes": 6, "fixed_bytes": 9},
    {"name": "cut", "devices": 2, "forward_s": 0.5, "sent": [[0, 11]]}]},
  {"name": "b", "backward": true, "options": [{"name": "plain", "forward_s": 0}]}],
 "edges": [{"from": 0, "to": 1, "bytes": 30, "time_s": 0.25}]})";

TEST_CASE("a table of layers is read key by key, and reads back as it was", "[layer_table]") {
  const LayerTable table = parse_layer_table(stated, "two.json");
  CHECK(table.devices == 4U);
  CHECK(table.hosts == 0U);
  CHECK(table.micro_batches == 8U);
  CHECK(table.memory == Bytes{1000});
  CHECK(table.bandwidth == BytesPerSecond{2.5e9});
  REQUIRE(table.layers.size() == 2);
  const Layer& a = table.layers[0];
  CHECK(a.count == 3);
  CHECK(a.place == Layer::Place::first);
  CHECK(a.together == 7U);
  CHECK(a.host == Seconds{4});
  REQUIRE(a.options.size() == 2);
  CHECK(a.options[0] == LayerOption{"plain", 1, {1}, {2}, {5}, {6}, {9}, {}});
  CHECK(a.options[1].devices == 2);
  CHECK(a.options[1].sent == std::vector<std::pair<std::uint32_t, Bytes>>{{0, Bytes{11}}});
  CHECK(table.layers[1].backward);
  CHECK(table.edges[0] == LayerEdge{0, 1, Bytes{30}, Seconds{0.25}});
  CHECK(parse_layer_table(layer_table_text(table), "again.json") == table);
}

std::string table_complaint(const std::string& what, const std::string& instead) {
  std::string text = stated;
  text.replace(text.find(what), what.size(), instead);
  return complaint_of([&] { parse_layer_table(text, "two.json"); });
}

TEST_CASE("malformed tables of layers are refused where they are wrong", "[layer_table]") {
  CHECK(table_complaint("layers.v1", "layers.v2") ==
        "two.json:1:12: format: expected 'plimsoll.layers.v1', found 'plimsoll.layers.v2'");
  CHECK(table_complaint("\"devices\": 4", "\"devices\": 0") ==
        "two.json:1:86: devices: expected a whole number from 1 to 1000000, found 0");
  CHECK(table_complaint("2.5e9", "0") == "two.json:2:81: bandwidth_bytes_per_s: expected more than 0, found 0");
  CHECK(table_complaint("\"first\"", "\"fist\"") ==
        "two.json:3:38: layers[0].place: expected anywhere, first or last, found \"fist\"; did you mean 'first'?");
  CHECK(table_complaint("[0, 11]", "[0, 11, 12]") ==
        "two.json:5:62: layers[0].options[1].sent[0]: expected an edge and bytes, found 3 numbers");
  CHECK(table_complaint("[0, 11]", "[1, 11]") ==
        "two.json:5:61: layers[0].options[1].sent: no such edge, expected an index below 1, found 1");
  CHECK(table_complaint("\"to\": 1", "\"to\": 2") ==
        "two.json:7:30: edges[0].to: no such layer, expected an index below 2, found 2");
  CHECK(table_complaint("\"from\": 0", "\"from\": 1") ==
        "two.json:5:61: layers[0].options[1].sent: edge 0 neither begins nor ends at this layer\n"
        "two.json:7:11: edges: they form a circle");
  CHECK(table_complaint(R"("options": [{"name": "plain", "forward_s": 0}])", "\"options\": []") ==
        "two.json:6:3: layers[1]: no way to run it: expected options, host_s or both");
}

}  // namespace
}  // namespace plimsoll
