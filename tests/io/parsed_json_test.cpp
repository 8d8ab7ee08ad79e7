// JSON of others, however deep.

#include <catch2/catch.hpp>

#include <string>

#include "sim/io/json/json_scanner.h"
#include "sim/io/json/parsed_json.h"

namespace plimsoll {
namespace {

std::string nested(int depth, const std::string& within) {
  std::string text;
  for (int d = 0; d < depth; ++d) text += d % 2 == 0 ? "[" : "{\"]\\\"\":";
  text += within;
  for (int d = depth; d-- > 0;) text += d % 2 == 0 ? "]" : "}";
  return text;
}

TEST_CASE("JSON that is nested deeper than it may be is none", "[io]") {
  const std::string deepest = nested(JsonScanner::deepest, "1");
  CHECK(parsed_json(deepest).dump() == deepest);
  CHECK(parsed_json(nested(JsonScanner::deepest + 1, "1")).is_discarded());
  CHECK(parsed_json(nested(1'000'000, "1")).is_discarded());
  CHECK(parsed_json(std::string(100'000, '[')).is_discarded());
}

TEST_CASE("brackets in strings and side by side are not nested", "[io]") {
  CHECK(parsed_json("\"" + std::string(1000, '[') + "\"").is_string());
  CHECK(parsed_json(R"("\\")").is_string());
  CHECK(parsed_json(R"({"a\"[[": ")" + std::string(1000, '{') + "\"}").is_object());
  std::string many = "[";
  for (int k = 0; k < 1000; ++k) many += "[],";
  CHECK(parsed_json(many + "[]]").size() == 1001);
  CHECK(parsed_json("[1, 2").is_discarded());
}

}  // namespace
}  // namespace plimsoll
