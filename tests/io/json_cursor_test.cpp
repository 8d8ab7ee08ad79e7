#include "sim/io/json/json_cursor.h"

#include <catch2/catch.hpp>

#include "sim/io/fields.h"
#include "sim/io/json/json.h"
#include "tests/bad_input.h"

using namespace plimsoll;

namespace {

/// Reads an object that has one key, "x", with the given accessor, and returns the complaint.
template <class Read>
std::string json_complaint(const std::string& value, Read read) {
  return complaint_of([&] {
    JsonDocument document("{\"x\": " + value + "}", "t");
    document.read([&](JsonCursor root) { root.object([&](std::string_view, JsonCursor c) { read(c); }); });
  });
}

struct Point {
  double x = 0, y = 0;
};
const Field<Point, JsonCursor> point_fields[] = {
    {"x", Need::required, [](Point& p, JsonCursor c) { p.x = c.number(); }},
    {"y", Need::optional, [](Point& p, JsonCursor c) { p.y = c.number(); }},
};

}  // namespace

TEST_CASE("JSON values arrive as what they are", "[io]") {
  JsonDocument document(
      R"({"text": "a\u00e9\ud83d\ude00\"\/\n", "yes": true, "number": 1.5e3, "index": 7, "integer": -9, "size": 17,
    "time": 0.1, "work": 1e12, "list": [1, [2, "]"], {"k": null}], "object": {"a": {}}, "long": "x"})",
      "t");
  std::string seen;
  document.read([&](JsonCursor root) {
    root.object([&](std::string_view key, JsonCursor c) {
      seen += key;
      if (key == "text") CHECK(c.string() == "a\u00e9\U0001f600\"/\n");
      if (key == "yes") CHECK(c.boolean());
      if (key == "number") CHECK(c.number() == 1500);
      if (key == "index") CHECK(c.index() == 7);
      if (key == "integer") CHECK(c.integer() == -9);
      if (key == "size") CHECK(c.bytes() == Bytes{17});
      if (key == "time") CHECK(c.seconds() == Seconds{0.1});
      if (key == "work") CHECK(c.flops() == Flops{1e12});
      if (key == "list") CHECK(c.compact() == R"([1,[2,"]"],{"k":null}])");
      // object and long are not read at all
    });
  });
  CHECK(seen == "textyesnumberindexintegersizetimeworklistobjectlong");
}

TEST_CASE("a JSON value of the wrong type is named with its place, and reading goes on", "[io]") {
  const std::string text = "{\"list\": [1, \"two\", {\"a\": 3}],\n \"b\": []}";
  CHECK(complaint_of([&] {
          JsonDocument document(text, "t");
          document.read([&](JsonCursor root) {
            root.object([&](std::string_view key, JsonCursor c) {
              if (key == "list") c.array([&](JsonCursor element) { element.number(); });
              if (key == "b") c.boolean();
            });
          });
        }) ==
        "t:1:14: list[1]: expected a number, found \"two\"\n"
        "t:1:21: list[2]: expected a number, found an object\n"
        "t:2:7: b: expected true or false, found a list");
}

TEST_CASE("JSON numbers out of range are refused", "[io]") {
  const auto bytes = [](JsonCursor c) { c.bytes(); };
  const auto number = [](JsonCursor c) { c.number(); };
  CHECK(json_complaint("-1", bytes) == "t:1:7: x: must not be negative, found -1");
  const auto signed_bytes = [](JsonCursor c) { CHECK(c.signed_bytes() == Bytes{-7}); };
  CHECK(json_complaint("-7", signed_bytes) == "no complaint");
  CHECK(json_complaint("-4503599627370497", [](JsonCursor c) { c.signed_bytes(); }) ==
        "t:1:7: x: absurdly large, expected -4503599627370496 to 4503599627370496 bytes, found -4503599627370497");
  CHECK(json_complaint("1.0", bytes) == "t:1:7: x: expected a whole number of bytes, found 1.0");
  CHECK(json_complaint("9223372036854775808", bytes) == "t:1:7: x: absurdly large, found 9223372036854775808");
  CHECK(json_complaint("1e999", number) == "t:1:7: x: absurdly large, found 1e999");
  CHECK(json_complaint("-0.5", number) == "t:1:7: x: must not be negative, found -0.5");
  CHECK(json_complaint("1e-999", number) == "no complaint");
  CHECK(json_complaint("4294967295", [](JsonCursor c) { c.index(); }) ==
        "t:1:7: x: expected a whole number from 0 to 4294967294, found 4294967295");
  CHECK(json_complaint("null", [](JsonCursor c) { c.string(); }) == "t:1:7: x: expected a string, found null");
}

TEST_CASE("text that is no JSON is named with its place", "[io]") {
  const auto nothing = [](JsonCursor) {};
  const auto number = [](JsonCursor c) { c.number(); };
  CHECK(json_complaint("nan", number) == "t:1:7: not valid JSON: 'nan' is not a value");
  CHECK(json_complaint("01", number) == "t:1:7: not valid JSON: a number must not begin with 0");
  CHECK(json_complaint("-", number) == "t:1:8: not valid JSON: expected a digit");
  CHECK(json_complaint("1.", number) == "t:1:9: not valid JSON: expected a digit");
  CHECK(json_complaint("+1", number) == "t:1:7: not valid JSON: '+1' is not a value");
  CHECK(json_complaint(",", number) == "t:1:7: not valid JSON: expected a value, found ,");
  CHECK(json_complaint("\"\\x\"", [](JsonCursor c) { c.string(); }) ==
        "t:1:8: not valid JSON: a bad escape in a string");
  CHECK(json_complaint("\"\\ud800\"", [](JsonCursor c) { c.string(); }) ==
        "t:1:8: not valid JSON: a bad escape in a string");
  CHECK(json_complaint("1} x", nothing) == "t:1:10: not valid JSON: something follows its end");
  CHECK(json_complaint("\"a\tb\"", nothing) == "t:1:9: not valid JSON: a line break or control character in a string");
  CHECK(json_complaint("\"\xff\"", nothing) == "t:1:8: not valid JSON: not UTF-8");
  CHECK(json_complaint(std::string("1\0, 2", 5), number) ==
        "t:1:8: not valid JSON: expected ',' or '}', found  ");  // a zero byte, printed as a space
  CHECK(json_complaint("\"\xed\xa0\x80\"", nothing) == "t:1:8: not valid JSON: not UTF-8");  // a lone surrogate
  CHECK(json_complaint("\"\xc0\xaf\"", nothing) == "t:1:8: not valid JSON: not UTF-8");      // an overlong form
  CHECK(json_complaint("[1, ]", nothing) == "t:1:11: not valid JSON: a comma too many");
  CHECK(json_complaint("\"", nothing) == "t:1:7: not valid JSON: a string that does not end");
  CHECK(json_complaint("\"\\u12", nothing) == "t:1:12: not valid JSON: a bad escape in a string");
  CHECK(complaint_of([] { JsonDocument document(" \n", "t"); }) == "t:1:1: not valid JSON: the file is empty");
}

TEST_CASE("JSON may begin with a byte order mark", "[io]") {
  JsonDocument document("\xEF\xBB\xBF{\"x\": 1}", "t");
  Point point;
  document.read([&](JsonCursor root) { read_fields(root, point_fields, point); });
  CHECK(point.x == 1);
}

TEST_CASE("a table of fields finds keys in any order and complains about the rest", "[io]") {
  const auto read = [](const std::string& text) {
    JsonDocument document(text, "t");
    Point point;
    document.read([&](JsonCursor root) { read_fields(root, point_fields, point); });
    return point;
  };
  CHECK(read(R"({"y": 2, "x": 1})").x == 1);
  CHECK(read(R"({"y": 2, "x": 1})").y == 2);
  CHECK(complaint_of([&] { read(R"({"y": 2, "z": 1})"); }) == "t:1:10: z: unknown key\nt:1:1: missing key 'x'");
  CHECK(complaint_of([&] { read(R"({"x": 1, "y": 2, "\u0078": 3})"); }) == "t:1:18: x: repeated key");
  CHECK(complaint_of([&] { read("[]"); }) == "t:1:1: expected an object, found a list");
}

TEST_CASE("repeated keys are found in objects of many keys", "[io]") {
  std::string text = "{";
  for (int i = 0; i < 1000; ++i) text += "\"key" + std::to_string(i) + "\": 0,\n";
  text += "\"key999\": 0, \"key3\": 0}";
  CHECK(complaint_of([&] {
          JsonDocument document(text, "t");
          document.read([](JsonCursor root) { root.object([](std::string_view, JsonCursor) {}); });
        }) == "t:1001:1: key999: repeated key\nt:1001:14: key3: repeated key");
}

TEST_CASE("complaints after reading find their place by path, or the nearest that exists", "[io]") {
  JsonDocument document("{\"ops\": [{\"a\": 1},\n  {\"inputs\": [3,\n 4]}]}", "t");
  document.read([](JsonCursor root) { root.object([](std::string_view, JsonCursor) {}); });
  document.complain("ops[1].inputs[1]", "x");
  document.complain("ops[1].outputs[0]", "y");
  document.complain("nothing", "z");
  CHECK(complaint_of([&] { document.throw_if_any(); }) ==
        "t:3:2: ops[1].inputs[1]: x\nt:2:3: ops[1].outputs[0]: y\nt:1:1: nothing: z");
}

TEST_CASE("a JSON file is written whole or not at all", "[io]") {
  const std::filesystem::path file = std::filesystem::temp_directory_path() / "plimsoll_json_test.json";
  write_json_file(file, Json{{"b", 1}, {"a", 0.1}});
  CHECK(read_text_file(file) == "{\n  \"b\": 1,\n  \"a\": 0.1\n}\n");
  std::filesystem::remove(file);
  CHECK(output_complaint_of([] { write_json_file("/nowhere/x.json", Json{}); }) ==
        "/nowhere/x.json: cannot write: No such file or directory");
  CHECK(output_complaint_of([] { write_json_file("/tmp", Json{}); }) == "/tmp: cannot write: Is a directory");
  CHECK(output_complaint_of([] { write_json_file("/dev/full", Json{}); }) ==
        "/dev/full: cannot write: No space left on device");
}
