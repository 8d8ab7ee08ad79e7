// Readers of the same thing against each other, on broken files and shipped ones, mutated.

#include <catch2/catch.hpp>
#include <filesystem>

#include "sim/io/text_file.h"
#include "tests/bad_input.h"
#include "tests/fuzz/same_json.h"
#include "tests/fuzz/same_yaml.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

constexpr std::size_t longest = 3000;  // of a text to begin with

std::vector<std::string> texts_of(const std::vector<std::string>& folders, const std::string& extension) {
  std::vector<std::string> texts;
  for (const std::string& folder : folders) {
    for (const std::filesystem::path& file : files_in(folder, extension)) {
      texts.push_back(read_text_file(file).substr(0, longest));
    }
  }
  return texts;
}

/// One to four changes: a piece left out, put in, repeated or moved, or the end cut off.
std::string mutated(std::string text, const std::vector<std::string>& pieces, Random& random) {
  const auto place = [&] {
    return static_cast<std::size_t>(random.below(static_cast<std::uint32_t>(text.size() + 1)));
  };
  const auto piece = [&] { return pieces[random.below(static_cast<std::uint32_t>(pieces.size()))]; };
  for (std::uint32_t changes = random.between(1, 4); changes > 0; --changes) {
    const std::size_t at = place(), length = random.between(1, 12);
    switch (random.below(6)) {
      case 0:
        text.erase(at, length);
        break;
      case 1:
        text.insert(at, piece());
        break;
      case 2:
        text.replace(at, random.below(3), piece());
        break;
      case 3:
        text.insert(place(), text.substr(at, length));
        break;
      case 4:
        text.insert(at, 1, static_cast<char>(random.below(256)));
        break;
      default:
        if (random.chance(0.2)) text.resize(at);
    }
  }
  return text;
}

template <class Disagreement>
void hold_against(const std::vector<std::string>& texts, const std::vector<std::string>& pieces,
                  Disagreement disagreement) {
  for (const std::string& text : texts) {
    const std::optional<std::string> found = disagreement(text);
    INFO(text);
    if (found) FAIL_CHECK(*found);
  }
  for (const RandomCase seed : random_cases(1, 4000)) {
    Random random(seed);
    const std::string text = mutated(texts[seed % texts.size()], pieces, random);
    const std::optional<std::string> found = disagreement(text);
    INFO(text);
    if (found) FAIL_CHECK(*found);
  }
}

TEST_CASE("the JSON scanner takes what nlohmann-json takes, and finds the same in it", "[io]") {
  std::vector<std::string> texts = texts_of(
      {"tests/bad_input/traces", "tests/bad_input/schedules", "tests/fuzz/corpus/trace", "tests/fuzz/corpus/json"},
      ".json");
  REQUIRE(texts.size() > 100);
  hold_against(texts,
               {"{",
                "}",
                "[",
                "]",
                ",",
                ":",
                "\"",
                "\\",
                "\\u00e9",
                "\\ud83d\\ude00",
                "\\ud800",
                "-",
                "-0",
                "1e5",
                "0.5",
                "1E-400",
                "1e400",
                "18446744073709551616",
                "01",
                "1.",
                ".5",
                "+1",
                "null",
                "true",
                "fals",
                "{}",
                "[[]]",
                "\"a\":",
                "\n",
                "\t",
                " ",
                "\xC3\xA9",
                "\xED\xA0\x80",
                "\xF0\x9F\x98\x80",
                "\x7F",
                "/*",
                "NaN"},
               json_disagreement);
}

TEST_CASE("our tree of a YAML text is yaml-cpp's, and that of what yaml-cpp writes of it", "[io]") {
  const std::vector<std::string> texts = texts_of(
      {"tests/bad_input/platforms", "platforms", "tests/fuzz/corpus/platform", "tests/fuzz/corpus/yaml"}, ".yaml");
  REQUIRE(texts.size() > 50);
  hold_against(texts,
               {"{",     "}",    "[",   "]",    ",",      ": ", "- ",   "\n",       "\n  ", "\n- ",  "'",      "\"",
                "#",     " # c", "&a ", "*a",   "!!str ", "~",  "null", "? ",       "|",    "|\n  ", ">-\n  ", "---\n",
                "...\n", "<<: ", "\t",  "a: b", "\\x41",  "%",  "@",    "\xC3\xA9", "0x1F", "1_000", "yes"},
               yaml_disagreement);
}

}  // namespace
}  // namespace plimsoll
