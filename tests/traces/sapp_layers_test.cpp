// SAPP's layers: what the import makes of them, and what each complaint says.

#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/bad_input.h"
#include "traces/imports/sapp_layers.h"
#include "traces/trace_file.h"

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

TEST_CASE("as a chain, equal layers of SAPP are stages, each by itself, between the first and the last",
          "[sapp_layers]") {
  const Chain chain = parse_sapp_chain(described, "small.json");
  REQUIRE(chain.stages.size() == 98);
  CHECK(chain.stages[0].name == "a");
  CHECK(chain.stages[1].name == "b[0]");
  CHECK(chain.stages[97].name == "c");
  const Stage& body = chain.stages[50];
  CHECK(body.forward.value == Approx(0.18));
  CHECK(body.backward.value == Approx(0.36));
  CHECK(boundary_bytes(chain, 50) == Bytes{32'000'000});  // what full recomputation keeps
  CHECK(body.saved == Bytes{826'000'000});                // with what it hands on instead of what it reads
  CHECK(body.recomputable);
  CHECK(chain.stages[0].saved == Bytes{32'000'000});
  CHECK(parameter_bytes(chain) == Bytes{(11'000 + 96 * 1583 + 2473) * std::int64_t{1'000'000}});
  CHECK(std::ranges::none_of(chain.parameters, &Parameter::trained));
  const std::pair<std::string, std::string> left_out{"left_out",
                                                     "ways to run layers: 'select' on 1 device (of 96 layers)"};
  CHECK(std::ranges::find(chain.source.notes, left_out) != chain.source.notes.end());
  CHECK(parse_trace(trace_text(Trace{chain}), "written.json") == Trace{chain});
}

TEST_CASE("without full recomputation a layer of SAPP has no input to be computed again from", "[sapp_layers]") {
  std::string text = described;
  text.replace(text.find("\"memory_recompute\": 32, "), 24, "");
  const Chain chain = parse_sapp_chain(text, "small.json");
  CHECK(boundary_bytes(chain, 50) == Bytes{0});
  CHECK(chain.stages[50].saved == Bytes{826'000'000});
  CHECK_FALSE(chain.stages[50].recomputable);
}

TEST_CASE("a chain has at most 100,000 of SAPP's layers", "[sapp_layers]") {
  std::string text = described;
  text.replace(text.find("96"), 2, "99999");
  CHECK(complaint_of([&] { parse_sapp_chain(text, "small.json"); }) == "small: 100001 layers, expected at most 100000");
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
