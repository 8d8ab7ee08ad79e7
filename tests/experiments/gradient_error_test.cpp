// `plimsoll replay` says how far approximate gradients are from those of plain training.

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/experiments/run_program.h"

namespace plimsoll {
namespace {

nlohmann::json replayed_json(const std::string& schedule) {
  const ProgramRun run = plimsoll("replay --json --pace memcpy --repetitions 1 --schedule " + schedule);
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  return nlohmann::json::parse(run.out);
}

TEST_CASE(
    "replay measures gradients that are approximate, less of an error with more bits, and none where all are exact",
    "[program]") {
  const TemporaryFolder folder;
  const auto schedule_of_spec = [&](const std::string& spec) {
    std::string file = (folder / "s.json").string();
    const ProgramRun made = plimsoll(
        "simulate --trace mlp:layers=3,width=24,batch=16,classes=4,view=graph,updates=adam "
        "--platform ideal --strategy '" +
        spec + "' --schedule-out " + file);
    INFO(made.err);
    REQUIRE(made.exit_code == 0);
    return file;
  };
  double before = 1;
  for (const std::string bits : {"2", "4", "8"}) {
    const nlohmann::json answer = replayed_json(schedule_of_spec("quantize(bits=" + bits + ")"));
    const nlohmann::json& error = answer["gradient_error"];
    INFO(error.dump());
    CHECK(error["approximate"].size() == 6);  // weights and biases of three layers
    for (const nlohmann::json& of_one : error["approximate"]) {
      CHECK(of_one["relative"] >= 0);
      CHECK(of_one["cosine"] > 0.5);
    }
    const double whole = error["whole"]["relative"];
    CHECK(whole > 0);
    CHECK(whole < before / 3);
    before = whole;
  }
  CHECK_FALSE(replayed_json(schedule_of_spec("lossless(nonzero=0.9)")).contains("gradient_error"));
  const ProgramRun text =
      plimsoll("replay --pace memcpy --repetitions 1 --schedule " + schedule_of_spec("quantize(bits=8)"));
  CHECK(text.out.find("  gradients  relative error 0.0") != std::string::npos);
  CHECK(text.out.find(" of all, against plain training; approximate are 6:\n") != std::string::npos);
}

}  // namespace
}  // namespace plimsoll
