#include "sim/io/printable.h"

#include <catch2/catch.hpp>
#include <sstream>

#include "sim/io/json/json.h"

namespace plimsoll {
namespace {

TEST_CASE("what is not UTF-8 is escaped byte by byte, all else stays", "[printable]") {
  CHECK(as_utf8("na\xC3\xAFve \xE2\x82\xAC \xF0\x9F\x9A\xA2") == "na\xC3\xAFve \xE2\x82\xAC \xF0\x9F\x9A\xA2");
  CHECK(as_utf8("caf\xE9") == "caf\\xE9");
  CHECK(as_utf8("\xC3") == "\\xC3");                             // ends in the middle
  CHECK(as_utf8("\xC0\xAF") == "\\xC0\\xAF");                    // too long for its code
  CHECK(as_utf8("\xE0\x80\xAF!") == "\\xE0\\x80\\xAF!");         // the same with three bytes
  CHECK(as_utf8("\xED\xA0\x80") == "\\xED\\xA0\\x80");           // half of a pair
  CHECK(as_utf8("\xF4\x90\x80\x80") == "\\xF4\\x90\\x80\\x80");  // beyond the last code
  CHECK(as_utf8("\x1b[2J") == "\x1b[2J");                        // JSON has its own way to write this
}

TEST_CASE("what would command a terminal is escaped, lines and tabs stay", "[printable]") {
  CHECK(printable("a\tb\nc") == "a\tb\nc");
  CHECK(printable("\x1b[2J\r\x07") == "\\x1B[2J\\x0D\\x07");
  CHECK(printable("\xC2\x9B"
                  "2J \x7F") ==
        "\\xC2\\x9B"
        "2J \\x7F");
  CHECK(printable("abc\xE2\x80\xAE"
                  "fed") ==
        "abc\\xE2\\x80\\xAE"
        "fed");
}

TEST_CASE("long text is cut between characters", "[printable]") {
  CHECK(shortened("abcdef", 6) == "abcdef");
  CHECK(shortened("abcdefg", 6) == "abcdef...");
  CHECK(shortened("ab\xE2\x82\xAC"
                  "d",
                  4) == "ab...");
}

TEST_CASE("a stream passes on what is printable, however its bytes come", "[printable]") {
  std::ostringstream below;
  {
    const PrintableOutput guard(below);
    below << "a\x1b" << '\xC3' << "\xA9 "
          << "\xE2\x82";
    below.flush();
    below << "\xAC" << 12 << '\n' << '\xC3';
  }
  below << '\x1b';
  CHECK(below.str() ==
        "a\\x1B\xC3\xA9 \xE2\x82\xAC"
        "12\n\\xC3\x1b");
}

TEST_CASE("JSON is written whatever bytes a name has", "[printable]") {
  const Json json{{"caf\xE9", {"a\xFF", 1, {{"b", "\x1b"}}}}};
  CHECK(json_text(json) == R"({"caf\\xE9":["a\\xFF",1,{"b":"\u001b"}]})");
  CHECK(Json::parse(json_text(json)) == Json{{"caf\\xE9", {"a\\xFF", 1, {{"b", "\x1b"}}}}});
}

}  // namespace
}  // namespace plimsoll
