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
  double before = std::sqrt(2);  // rounded by chance; to the nearest it would be 1
  for (const std::string bits : {"2", "4", "8"}) {
    const nlohmann::json answer = replayed_json(schedule_of_spec("quantize(bits=" + bits + ")"));
    const nlohmann::json& error = answer["gradient_error"];
    INFO(error.dump());
    CHECK(error["approximate"].size() == 6);  // weights and biases of three layers
    for (const nlohmann::json& of_one : error["approximate"]) {
      CHECK(of_one["relative"] >= 0);
      CHECK(of_one["cosine"] > 0.5);
      CHECK(of_one["noise"]["relative"] > 0.1);  // of random numbers and labels
      CHECK(of_one["relative_deviation"] >= 0);
    }
    CHECK(error["rounding"] == "stochastic");
    CHECK(error["seeds"] == 8);
    CHECK(error["other_batches"] == 4);
    CHECK(error["whole"]["relative_deviation"] > 0);
    const double whole = error["whole"]["relative"], bias = error["whole"]["bias"];
    CHECK(bias < 0.6 * whole);  // about 1 / sqrt(8) of it where it is unbiased; ReLUs between layers are no help
    CHECK(whole > 0);
    CHECK(whole < before / 3);
    before = whole;
  }
  CHECK_FALSE(replayed_json(schedule_of_spec("lossless(nonzero=0.9)")).contains("gradient_error"));
  const ProgramRun text =
      plimsoll("replay --pace memcpy --repetitions 1 --schedule " + schedule_of_spec("quantize(bits=8)"));
  CHECK(text.out.find("  gradients  relative error 0.0") != std::string::npos);
  CHECK(text.out.find(" of all, against plain training; 0.0") != std::string::npos);
  CHECK(
      text.out.find("means over 8 runs (stochastic rounding), distances over 4 other batches; approximate are 6:\n") !=
      std::string::npos);
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
  const double rounded = predicted("quantize(bits=4,tensors=linear.input)");
  CHECK(replayed_json(file)["gradient_error"]["whole"]["relative"] == Approx(rounded).epsilon(0.35));
  const ProgramRun nearest =
      plimsoll("replay --json --pace memcpy --repetitions 1 --rounding nearest --schedule " + file);
  const nlohmann::json error = nlohmann::json::parse(nearest.out)["gradient_error"];
  CHECK(error["seeds"] == 1);
  CHECK(error["rounding"] == "nearest");
  CHECK(error["whole"]["relative"] == Approx(rounded / std::sqrt(2)).epsilon(0.35));
  CHECK(simulated_json(network, "lossless", file)["gradient_error"].is_null());
}

TEST_CASE("wrong words about seeds, batches and rounding are refused", "[program]") {
  const TemporaryFolder folder;
  const std::string file = (folder / "s.json").string();
  simulated_json("mlp:layers=2,width=8,batch=4,view=graph", "quantize", file);
  const auto refused = [&](const std::string& words) {
    const ProgramRun run = plimsoll("replay --schedule " + file + " " + words);
    CHECK(run.exit_code == 2);
    return run.err;
  };
  CHECK(refused("--seeds 0") == "--seeds: expected a whole number from 1 to 1000, found '0'\n");
  CHECK(refused("--batches x") == "--batches: expected a whole number from 1 to 1000, found 'x'\n");
  CHECK(refused("--rounding neerest") ==
        "--rounding: expected stochastic or nearest, found 'neerest'; did you mean 'nearest'?\n");
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
