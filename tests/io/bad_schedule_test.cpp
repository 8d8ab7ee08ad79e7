#include <catch2/catch.hpp>

#include "sim/io/schedule/schedule_file.h"
#include "tests/bad_input.h"

namespace plimsoll {
namespace {

TEST_CASE("every broken schedule is refused with the message beside it", "[io]") {
  const std::vector<std::filesystem::path> broken = files_in("tests/bad_input/schedules", ".json");
  CHECK(broken.size() > 40);
  for (const std::filesystem::path& file : broken) {
    INFO(file.string());
    CHECK(complaint_of([&] { read_schedule(file); }) == expected_complaint(file));
  }
}

TEST_CASE("sizes of buffers that are fine one by one must not overflow together", "[io]") {
  std::string text = R"({"format": "plimsoll.schedule.v1", "buffers": [)";
  for (int i = 0; i < 1100; ++i) {
    text.append(i == 0 ? "" : ",\n").append(R"({"tensor": 0, "memory": 0, "bytes": 4503599627370496})");
  }
  const std::string complaint = complaint_of([&] { parse_schedule(text + "]}", "many.json"); });
  CHECK(complaint.substr(0, complaint.find('\n')) ==
        "many.json:1025:37: buffers[1024].bytes: absurdly large: the sum of all sizes so far does not fit 62 bits");
}

TEST_CASE("a schedule that ends anywhere too early, and one that is not there, end in a located message", "[io]") {
  const std::string good = read_text_file("tests/fuzz/corpus/schedule/one_step.json");
  CHECK(complaint_of([&] { parse_schedule(good, "s.json"); }) == "no complaint");
  for (std::size_t length = 0; length + 2 < good.size(); ++length) {
    INFO(length);
    REQUIRE(complaint_of([&] { parse_schedule(good.substr(0, length), "s.json"); }).starts_with("s.json:"));
  }
  CHECK(complaint_of([] { read_schedule("nowhere/s.json"); }) ==
        "nowhere/s.json: cannot read: No such file or directory");
  CHECK(complaint_of([] { read_schedule("tests/bad_input"); }) == "tests/bad_input: cannot read: Is a directory");
}

}  // namespace
}  // namespace plimsoll
