#include "sim/io/excerpt.h"

#include <catch2/catch.hpp>

#include "sim/io/json/json_cursor.h"
#include "sim/io/yaml_document.h"

namespace plimsoll {
namespace {

TEST_CASE("an excerpt is the line with a caret under the column", "[io]") {
  CHECK(excerpt("one\ntwo three\nfour", {2, 5}) == "  two three\n      ^");
  CHECK(excerpt("one", {1, 1}) == "  one\n  ^");
  CHECK(excerpt("one\r\ntwo\r\n", {1, 4}) == "  one\n     ^");
  CHECK(excerpt("one", {1, 99}) == "  one\n     ^");
}

TEST_CASE("the caret keeps its place behind tabs, wide characters and what is shown escaped", "[io]") {
  CHECK(excerpt("\tkey:\tvalue", {1, 7}) == "  \tkey:\tvalue\n  \t    \t^");
  CHECK(excerpt("\u00e9\u00e9x", {1, 3}) == "  \u00e9\u00e9x\n    ^");
  CHECK(excerpt("\u6f22x", {1, 2}) == "  \u6f22x\n    ^");     // two columns wide
  CHECK(excerpt("e\u0301x", {1, 3}) == "  e\u0301x\n   ^");    // a combining accent
  CHECK(excerpt("\x1bx", {1, 2}) == "  \\x1Bx\n      ^");      // would command the terminal
  CHECK(excerpt("\xe9x", {1, 2}) == "  \\xE9x\n      ^");      // not UTF-8
  CHECK(excerpt("\xEF\xBB\xBFkey", {1, 2}) == "  key\n   ^");  // a byte order mark is no column
}

TEST_CASE("long lines are cut around the place", "[io]") {
  const std::string before(1000, 'a'), after(1000, 'b');
  const std::string text = excerpt(before + "HERE" + after, {1, 1001});
  CHECK(text ==
        "  ..." + std::string(60, 'a') + "HERE" + std::string(36, 'b') + "...\n     " + std::string(60, ' ') + "^");
  CHECK(excerpt(std::string(99, 'a'), {1, 1}) == "  " + std::string(99, 'a') + "\n  ^");
}

TEST_CASE("where there is no line to show there is no excerpt", "[io]") {
  CHECK(excerpt("one\n", {}) == "");
  CHECK(excerpt("one\n", {9, 1}) == "");
  CHECK(excerpt("one\n \t\n", {2, 1}) == "");
}

template <class Read>
std::vector<std::string> excerpts_of(Read&& read) {
  try {
    read();
  } catch (const InputError& error) {
    return error.excerpts();
  }
  return {"no complaint"};
}

TEST_CASE("readers of YAML and JSON point into their text", "[io]") {
  const std::string yaml = "name: \u00e9\u00e9\nrows: {\u00fc: 1, size: 17}\n";
  CHECK(excerpts_of([&] {
          YamlDocument document(yaml, "f.yaml");
          document.root().object([](std::string_view key, YamlCursor value) {
            if (key == "rows") {
              value.object([](std::string_view inner, YamlCursor size) {
                if (inner == "size") size.bytes();
              });
            }
          });
          document.throw_if_any();
        }) == std::vector<std::string>{"  rows: {\u00fc: 1, size: 17}\n                     ^"});
  const std::string json = "{\"name\": \"\u00e9\",\n \"size\": -1}";
  CHECK(excerpts_of([&] {
          JsonDocument document(json, "f.json");
          document.read([](JsonCursor root) {
            root.object([](std::string_view key, JsonCursor value) {
              if (key == "size") value.bytes();
            });
          });
        }) == std::vector<std::string>{"   \"size\": -1}\n           ^"});
}

}  // namespace
}  // namespace plimsoll
