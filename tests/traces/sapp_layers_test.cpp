// SAPP's layers: what the import makes of them, and what each complaint says.

#include <catch2/catch.hpp>

#include "tests/bad_input.h"
#include "traces/imports/sapp_layers.h"

namespace plimsoll {
namespace {

const std::string described = R"({"name": "small", "pre_defined_layer": {"a": 0}, "layers_description": [
  {"name": "a", "type": "HEAD", "time": 30, "nb_layer": 1, "memory_parameter": 11000},
  {"name": "b", "model_name": "m", "type": "BODY", "time": 180, "nb_layer": 96, "memory_parameter": 1583,
   "memory_activation": 826, "memory_recompute": 32, "memory_select_rec": 614, "select_rec_coef": 0.125},
  {"name": "c", "type": "TAIL", "time": 90, "nb_layer": 1, "memory_parameter": 2473}]})";

TEST_CASE("layers of SAPP become layers with an option a way to recompute", "[sapp_layers]") {
  const LayerTable table = parse_sapp_layers(described, "small.json");
  CHECK(table.name == "small");
  REQUIRE(table.layers.size() == 3);
  CHECK(table.layers[0].place == Layer::Place::first);
  CHECK(table.layers[2].place == Layer::Place::last);
  const Layer& body = table.layers[1];
  CHECK(body.count == 96);
  REQUIRE(body.options.size() == 3);
  CHECK(body.options[0].name == "none");
  CHECK(body.options[0].backward.value == Approx(0.36));
  CHECK(body.options[1].name == "select");
  CHECK(body.options[1].backward.value == Approx(0.405));
  CHECK(body.options[1].kept == Bytes{614'000'000});
  CHECK(body.options[2].name == "full");
  CHECK(body.options[2].backward.value == Approx(0.54));
  CHECK(body.options[2].fixed == Bytes{1'583'000'000});
  CHECK(parse_layer_table(layer_table_text(table), "written.json") == table);
}

std::string sapp_complaint(const std::string& what, const std::string& instead) {
  std::string text = described;
  text.replace(text.find(what), what.size(), instead);
  return complaint_of([&] { parse_sapp_layers(text, "small.json"); });
}

TEST_CASE("malformed layers of SAPP are refused where they are wrong", "[sapp_layers]") {
  CHECK(sapp_complaint("\"TAIL\"", "\"TALE\"") ==
        "small.json:5:25: layers_description[2].type: expected HEAD, BODY or TAIL, found \"TALE\"");
  CHECK(sapp_complaint("\"nb_layer\": 96", "\"nb_layer\": 0") ==
        "small.json:3:77: layers_description[1].nb_layer: expected a whole number from 1 to 100000");
  CHECK(sapp_complaint("\"memory_activation\": 826, ", "") ==
        "small.json:3:3: layers_description[1]: a BODY without memory_activation");
  CHECK(sapp_complaint("\"BODY\"", "\"HEAD\"") ==
        "small.json:1:72: layers_description: expected at least one BODY\n"
        "small.json:1:72: layers_description: expected at most one HEAD and one TAIL");
}

}  // namespace
}  // namespace plimsoll
