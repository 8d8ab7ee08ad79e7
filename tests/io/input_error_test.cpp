#include "sim/io/input_error.h"

#include <catch2/catch.hpp>

#include "sim/io/key_path.h"
#include "tests/bad_input.h"

using namespace plimsoll;

TEST_CASE("a complaint names file, line, column and key, as far as there are any", "[io]") {
  CHECK(located("platforms/dgx.yaml", {4, 5}, "gpus[0].bandwith", "unknown key; did you mean 'bandwidth'?") ==
        "platforms/dgx.yaml:4:5: gpus[0].bandwith: unknown key; did you mean 'bandwidth'?");
  CHECK(located("f", {}, "", "empty") == "f: empty");
  CHECK(located("", {}, "--memory", "missing unit") == "--memory: missing unit");
}

TEST_CASE("a position counts lines and characters from one", "[io]") {
  CHECK(position_of("ab\ncd", 0) == Position{1, 1});
  CHECK(position_of("ab\ncd", 4) == Position{2, 2});
  CHECK(position_of("ab\n", 3) == Position{2, 1});
  CHECK(position_of("\u00e9\u00e9x", 4) == Position{1, 3});
  CHECK(position_of("ab", 99) == Position{1, 3});
}

TEST_CASE("the suggestion is the nearest word, if any is near", "[io]") {
  const std::vector<std::string> words{"bandwidth", "latency", "duplex", "name"};
  CHECK(suggestion("bandwith", words) == "; did you mean 'bandwidth'?");
  CHECK(suggestion("Latency", words) == "; did you mean 'latency'?");
  CHECK(suggestion("lantecy", words) == "; did you mean 'latency'?");
  CHECK(suggestion("nmae", words) == "; did you mean 'name'?");
  CHECK(suggestion("size", words) == "");
  CHECK(suggestion("", words) == "");
  CHECK(suggestion(std::string(100'000, 'x'), words) == "");
}

TEST_CASE("a word with a number is first what begins with it", "[io]") {
  const std::vector<std::string> cards{"h200", "h100_sxm_8", "v100_pcie", "rtx_4090_pcie4"};
  CHECK(suggestion("H100", cards) == "; did you mean 'h100_sxm_8'?");
  CHECK(suggestion("rtx 4090", cards) == "; did you mean 'rtx_4090_pcie4'?");
  CHECK(suggestion("4090", cards) == "; did you mean 'rtx_4090_pcie4'?");
  CHECK(suggestion("h300", cards) == "; did you mean 'h200'?");
}

TEST_CASE("alternatives read like a sentence", "[io]") {
  const std::string_view names[] = {"a", "b", "c"};
  CHECK(alternatives(std::span(names, 1)) == "a");
  CHECK(alternatives(std::span(names, 2)) == "a or b");
  CHECK(alternatives(names) == "a, b or c");
}

TEST_CASE("complaints come together, each once, and at most twenty", "[io]") {
  Complaints two("f");
  two.throw_if_any();
  two.add({1, 2}, "a", "x");
  two.add({1, 2}, "a", "x");
  two.add({3, 4}, "b", "y");
  CHECK(complaint_of([&] { two.throw_if_any(); }) == "f:1:2: a: x\nf:3:4: b: y");

  Complaints many("f");
  const std::string text = complaint_of([&] {
    for (std::uint32_t i = 1;; ++i) many.add({i, 1}, "", "x");
  });
  CHECK(std::ranges::count(text, '\n') == 20);
  CHECK(text.ends_with("\nf: too many errors, not looking further"));
}

TEST_CASE("a path of keys reads as it would be written", "[io]") {
  const KeyPath root, stages{&root, "stages"}, third{&stages, "", 3}, saved{&third, "saved_bytes"};
  CHECK(to_string(root) == "");
  CHECK(to_string(saved) == "stages[3].saved_bytes");
  CHECK(below("ops", 2) == "ops[2]");
  CHECK(below("ops", 2, "inputs") == "ops[2].inputs");
}
