// `plimsoll simulate` says how far approximate gradients will be from those of plain training, `plimsoll replay` how
// far they are.

#include <catch2/catch.hpp>
#include <cmath>
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

nlohmann::json simulated_json(const std::string& trace, const std::string& spec, const std::string& schedule) {
  const ProgramRun made = plimsoll("simulate --json --platform ideal --trace " + trace + " --strategy '" + spec +
                                   "' --schedule-out " + schedule);
  INFO(trace << ", " << spec << ": " << made.err);
  REQUIRE(made.exit_code == 0);
  return nlohmann::json::parse(made.out);
}

TEST_CASE("errors on white noise are near those of a network whose values are nearly that", "[program]") {
  const TemporaryFolder folder;
  const std::string file = (folder / "s.json").string();
  const std::string network = "mlp:layers=4,width=64,batch=64,view=graph";
  const auto predicted = [&](const std::string& spec) -> double {
    return simulated_json(network, spec, file)["gradient_error"]["whole"]["relative"];
  };
  const double dropped = predicted("prune_bsr(block=4,keep=0.5)");
  CHECK(replayed_json(file)["gradient_error"]["whole"]["relative"] == Approx(dropped).epsilon(0.2));
  // The replay rounds to the nearest number, which is sqrt(2) nearer than by chance.
  const double rounded = predicted("quantize(bits=4,tensors=linear.input)") / std::sqrt(2);
  CHECK(replayed_json(file)["gradient_error"]["whole"]["relative"] == Approx(rounded).epsilon(0.35));
  CHECK(simulated_json(network, "lossless", file)["gradient_error"].is_null());
}

TEST_CASE("compression strategies have legal schedules for networks that run here", "[program]") {
  const TemporaryFolder folder;
  const std::string file = (folder / "s.json").string();
  for (const std::string network : {"resnet:blocks=2,view=graph", "gpt:layers=1,view=graph"}) {
    for (const std::string spec : {"quantize", "prune_bsr", "lossless", "actnn", "gact", "alam"}) {
      simulated_json(network, spec, file);
      const ProgramRun check = plimsoll("check --schedule " + file);
      INFO(network << ", " << spec << ": " << check.out << check.err);
      CHECK(check.exit_code == 0);
    }
  }
}

}  // namespace
}  // namespace plimsoll
