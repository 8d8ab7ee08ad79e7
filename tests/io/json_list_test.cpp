#include "sim/io/json/json_list.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>

#include "tests/bad_input.h"
#include "tests/experiments/temporary_folder.h"

using namespace plimsoll;

namespace {

std::string written(const TemporaryFolder& folder, const std::string& text) {
  std::string file = (folder / "t.json").string();
  std::ofstream(file, std::ios::binary) << text;
  return file;
}

/// The elements of the list "l" of a text, without spaces.
std::vector<std::string> elements(const std::string& file) {
  std::vector<std::string> all;
  read_json_list(file, "l",
                 [&](JsonDocument& element) { element.read([&](JsonCursor root) { all.push_back(root.compact()); }); });
  return all;
}

/// What is wrong with a text, without the file's name.
std::string list_complaint(const std::string& text) {
  const TemporaryFolder folder;
  const std::string file = written(folder, text);
  const std::string complaint = complaint_of([&] { elements(file); });
  return complaint.starts_with(file + ":") ? complaint.substr(file.size() + 1) : complaint;
}

}  // namespace

TEST_CASE("a list is read element by element, bare or as a field, wherever blocks of the file end", "[io]") {
  const TemporaryFolder folder;
  const std::string tricky = R"({"a":"]}\"\\","b":[{},[1,2]]})";
  CHECK(elements(written(folder, "[]")).empty());
  CHECK(elements(written(folder, "\xEF\xBB\xBF {\"x\": {\"l\": [1]}, \"l\" : [\n] , \"y\":null } \n")).empty());
  CHECK(elements(written(folder, "[" + tricky + " , {} ]")) == std::vector<std::string>{tricky, "{}"});
  // Long enough for several blocks, with an element on every border of one whatever its size.
  std::string text = "{\"before\": [1, \"l\"], \"l\": [";
  std::vector<std::string> expected;
  for (int i = 0; i < 40'000; ++i) {
    expected.push_back("{\"n\":" + std::to_string(i) + ",\"s\":\"" +
                       std::string(static_cast<std::size_t>(i % 37), 'x') + "\"}");
    text += (i == 0 ? "" : ",") + expected.back();
  }
  CHECK(elements(written(folder, text + "]}")) == expected);
}

TEST_CASE("a list that gzip compressed reads the same, and a damaged one is refused", "[io]") {
  const TemporaryFolder folder;
  std::string text = "[";
  for (int i = 0; i < 2'000; ++i) text += (i == 0 ? "{\"n\": " : ",{\"n\": ") + std::to_string(i * i) + "}";
  const std::string plain = written(folder, text + "]");
  const std::vector<std::string> expected = elements(plain);
  REQUIRE(expected.size() == 2'000);
  REQUIRE(std::system(("gzip -k " + plain).c_str()) == 0);
  CHECK(elements(plain + ".gz") == expected);

  std::string bytes = bytes_of(plain + ".gz");
  std::ofstream(plain + ".gz", std::ios::binary) << bytes.substr(0, bytes.size() / 2);
  CHECK(complaint_of([&] { elements(plain + ".gz"); }) ==
        plain + ".gz: cannot read: the compressed file ends too early");
  bytes[bytes.size() / 2] = static_cast<char>(~bytes[bytes.size() / 2]);
  std::ofstream(plain + ".gz", std::ios::binary) << bytes;
  CHECK(complaint_of([&] { elements(plain + ".gz"); }) != "no complaint");
  CHECK(complaint_of([&] { elements(folder.path.string()); }) ==
        folder.path.string() + ": cannot read: Is a directory");
  CHECK(complaint_of([&] { elements("no/such"); }) == "no/such: cannot read: No such file or directory");
}

TEST_CASE("what is wrong with a list is named with its place in the file", "[io]") {
  CHECK(list_complaint("") == "1:1: not valid JSON: the file is empty");
  CHECK(list_complaint("7") == "1:1: not valid JSON: expected an object or a list, found 7");
  CHECK(list_complaint("{\"k\": []}") == "1:1: missing key 'l', a list");
  CHECK(list_complaint("{\"l\": {}}") == "1:7: l: expected a list");
  CHECK(list_complaint("{\"l\": [],\n\"l\": []}") == "2:1: l: repeated key");
  CHECK(list_complaint("[{}\n {}]") == "2:2: not valid JSON: expected ',' or ']', found {");
  CHECK(list_complaint("[{}, ]") == "1:6: not valid JSON: expected a value, found ]");
  CHECK(list_complaint("[{}] 1") == "1:6: not valid JSON: something follows its end");
  CHECK(list_complaint("[{}, {\"a\": 1") == "1:13: not valid JSON: expected a value, the text ends too early");
  CHECK(list_complaint("[{}") == "1:4: not valid JSON: expected ',' or ']', the text ends too early");
  CHECK(list_complaint("[{},\n {\"a\":\n  1 2}]") == "3:5: not valid JSON: expected ',' or '}', found 2");
  CHECK(list_complaint("[{\"\xC3\xA9\": 1}, 3]") == "1:12: not valid JSON: expected an object, which begins with '{'");
  CHECK(list_complaint("{\"x\": [1, }], \"l\": []}") != "no complaint");
  CHECK(list_complaint("[{\"a\": \"" + std::string(longest_json_element, 'x') + "\"}]") ==
        "1:2: not valid JSON: a value longer than 16777216 bytes");
}

TEST_CASE("a complaint about an element says its path", "[io]") {
  const TemporaryFolder folder;
  const std::string file = written(folder, "{\"l\": [{\"t\": 1},\n  {\"t\": 1e400}]}");
  const std::string complaint = complaint_of([&] {
    read_json_list(file, "l", [&](JsonDocument& element) {
      element.read([&](JsonCursor root) { root.object([](std::string_view, JsonCursor c) { c.thousandths(); }); });
    });
  });
  CHECK(complaint == file + ":2:9: l[1].t: absurdly large, found 1e400");
}

TEST_CASE("thousandths are exact where a double is not", "[io]") {
  const auto thousandths = [](const std::string& text) {
    std::int64_t value = 0;
    JsonDocument document("[" + text + "]", "t");
    document.read([&](JsonCursor root) { root.array([&](JsonCursor c) { value = c.thousandths(); }); });
    return value;
  };
  CHECK(thousandths("1712195495501688.123") == 1'712'195'495'501'688'123);
  CHECK(thousandths("0") == 0);
  CHECK(thousandths("7") == 7'000);
  CHECK(thousandths("7.5") == 7'500);
  CHECK(thousandths("7.0009") == 7'000);
  CHECK(thousandths("-0.25") == -250);
  CHECK(thousandths("1.5e3") == 1'500'000);
  CHECK(thousandths("1e-400") == 0);
  CHECK(thousandths("4000000000000000") == 4'000'000'000'000'000'000);
  CHECK(complaint_of([&] { thousandths("4000000000000001"); }) == "t:1:2: [0]: absurdly large, found 4000000000000001");
  CHECK(complaint_of([&] { thousandths("99999999999999999999999"); }) ==
        "t:1:2: [0]: absurdly large, found 99999999999999999999999");
  CHECK(complaint_of([&] { thousandths("-1e30"); }) == "t:1:2: [0]: absurdly large, found -1e30");
}
