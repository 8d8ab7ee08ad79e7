#include <catch2/catch.hpp>

#include "tests/bad_input.h"
#include "traces/trace_file.h"

using namespace plimsoll;

TEST_CASE("every broken trace is refused with the message beside it", "[traces]") {
  const std::vector<std::filesystem::path> broken = files_in("tests/bad_input/traces", ".json");
  CHECK(broken.size() > 60);
  for (const std::filesystem::path& file : broken) {
    INFO(file.string());
    CHECK(complaint_of([&] { read_trace(file); }) == expected_complaint(file));
  }
}

TEST_CASE("sizes that are fine one by one must not overflow together", "[traces]") {
  std::string text = R"({"format": "plimsoll.trace.v1", "kind": "chain", "name": "n", "input_bytes": 0, "stages": [)";
  const std::string stage =
      R"({"name": "s", "forward_s": 1, "backward_s": 1, "output_bytes": 4503599627370496, "saved_bytes": 4503599627370496})";
  for (int i = 0; i < 600; ++i) text.append(i == 0 ? "" : ",\n").append(stage);
  CHECK(complaint_of([&] { parse_trace(text + "]}", "many.json"); }) ==
        "many.json:513:64: stages[512].output_bytes: absurdly large: the sum of all sizes so far does not fit 62 bits");
}

TEST_CASE("a name that is nobody's is refused with the nearest", "[traces]") {
  CHECK(complaint_of([] { load_trace("resnet50_b8_cp"); }) ==
        "no file and no shipped trace is called 'resnet50_b8_cp'; did you mean 'resnet50_b8_cpu'? (plimsoll list "
        "traces)");
  CHECK(complaint_of([] { load_trace("nowhere/t.json"); }) == "nowhere/t.json: cannot read: No such file or directory");
  CHECK(complaint_of([] { load_trace("tests/bad_input"); }) == "tests/bad_input: cannot read: Is a directory");
}

TEST_CASE("deep nesting, truncation anywhere and stray bytes end in a located message", "[traces]") {
  const std::string good = read_text_file("traces/data/resnet50_b8_cpu.json").substr(0, 6000);
  for (std::size_t length = 0; length < good.size(); length += 7) {
    const std::string complaint = complaint_of([&] { parse_trace(good.substr(0, length), "t.json"); });
    INFO(length);
    REQUIRE(complaint.starts_with("t.json:"));
  }
  const std::string deep = std::string(1'000'000, '[');
  CHECK(complaint_of([&] { parse_trace(deep, "t.json"); }) == "t.json:1:1: expected an object, found a list");
  const std::string below_a_key = "{\"format\":\"plimsoll.trace.v1\",\"kind\":\"chain\",\"name\":" + deep + "}";
  CHECK(complaint_of([&] { parse_trace(below_a_key, "t.json"); }).starts_with("t.json:1:"));
}
