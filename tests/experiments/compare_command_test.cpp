// plimsoll compare, as people call it.

#include <catch2/catch.hpp>

#include "tests/experiments/run_program.h"

namespace plimsoll {
namespace {

/// A timeline of ours whose backwards have workspaces below 0: saved tensors die before gradients appear.
std::string timeline_in(const TemporaryFolder& folder) {
  const std::string trace = folder / "t.json", timeline = folder / "timeline.json";
  std::ofstream(trace) << R"({"format": "plimsoll.trace.v1", "kind": "chain", "name": "dies_early", "input_bytes": 100,
    "stages": [{"name": "a", "forward_s": 1, "backward_s": 2, "output_bytes": 100, "saved_bytes": 500,
                "backward_workspace_bytes": -300, "backward_accumulate_workspace_bytes": -300},
               {"name": "loss", "forward_s": 1, "backward_s": 1, "output_bytes": 0, "saved_bytes": 10}]})";
  const ProgramRun run =
      plimsoll("simulate -t " + trace + " -p ideal -s store_all --timeline " + timeline + " --engine event");
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  REQUIRE(text_of(timeline).find("-300") != std::string::npos);
  return timeline;
}

TEST_CASE("one recording is told alone, in columns", "[compare]") {
  const TemporaryFolder folder;
  const ProgramRun run = plimsoll("compare " + timeline_in(folder));
  CHECK(run.err.empty());
  CHECK(run.exit_code == 0);
  CHECK(run.out ==
        "               time\n"
        "whole        5.00 s\n"
        "forward      2.00 s\n"
        "backward     3.00 s\n"
        "idle            0 s\n"
        "live peak B     710\n"
        "live mean B     584\n");
}

TEST_CASE("a recording alone has nothing to be within a percentage of", "[compare]") {
  const TemporaryFolder folder;
  const ProgramRun run = plimsoll("compare --within 3 " + timeline_in(folder));
  CHECK(run.exit_code == 2);
  CHECK(run.err == "--within: expected two timelines, found one\n");
}

TEST_CASE("of a recording alone the JSON has nulls where something simulated would be", "[compare]") {
  const TemporaryFolder folder;
  const std::string timeline = timeline_in(folder);
  const ProgramRun alone = plimsoll("compare --json " + timeline),
                   both = plimsoll("compare --json " + timeline + " " + timeline);
  CHECK(alone.exit_code == 0);
  CHECK(alone.out.find("\"simulated_s\": null") != std::string::npos);
  CHECK(alone.out.find("\"simulated_idle_s\": null") != std::string::npos);
  CHECK(both.out.find("\"simulated_idle_s\": 0") != std::string::npos);
  CHECK(both.out.find("\"error\": 0") != std::string::npos);
}

}  // namespace
}  // namespace plimsoll
