// A portfolio on several devices, and with states of 8 bits: what it asks, what it takes, and that others can read it.

#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/experiments/run_program.h"
#include "tests/experiments/temporary_folder.h"

namespace plimsoll {
namespace {

using nlohmann::json;

std::string question_about(const TemporaryFolder& folder, int devices) {
  const std::string platform = (folder / "line.yaml").string();
  std::ofstream(platform) << "format: plimsoll.platform.v1\nname: line\nsource: none\n"
                             "devices: [{name: gpu, count: "
                          << devices
                          << ", memory: 1 GB, times: trace}]\n"
                             "memories: [{name: host, size: 1 GB}]\n"
                             "links: [{name: pcie, between: [gpu, host], bandwidth: 10 GBps, latency: 0 s}"
                          << (devices > 1 ? ", {name: peers, between: [gpu, gpu], bandwidth: 10 GBps, latency: 0 s}"
                                          : "")
                          << "]\n";
  return " --platform " + platform +
         " --trace 'uniform:stages=6,forward=10 ms,backward=20 ms,parameters=1 kB' --micro-batches 4 --engine event "
         "--strategy ";
}

}  // namespace

TEST_CASE("a portfolio uses all devices where that is faster, and its schedule is one that check takes", "[program]") {
  const TemporaryFolder folder;
  const std::string question = question_about(folder, 3);
  const ProgramRun run = plimsoll("simulate --json " + question + "'portfolio(effort=0)'");
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  const json made = json::parse(run.out);
  const double alone = json::parse(plimsoll("simulate --json " + question + "1f1b").out)["makespan_s"];
  CHECK(made["makespan_s"].get<double>() <= alone * (1 + 1e-9));
  CHECK(made["makespan_s"].get<double>() < 0.9 * 6 * 4 * 0.03);
  int taken = 0;
  for (const json& each : made["candidates"]) {
    CHECK(each["strategy"].get<std::string>().find("adam8bit") == std::string::npos);
    if (!each["taken"].get<bool>()) continue;
    ++taken;
    CHECK(each["strategy"] == made["strategy"]);
    CHECK(each["makespan_s"] == made["makespan_s"]);
  }
  CHECK(taken == 1);
  const std::string file = (folder / "schedule.json").string();
  CHECK(plimsoll("plan " + question + "'portfolio(effort=0)' -o " + file).exit_code == 0);
  CHECK(plimsoll("check " + file).exit_code == 0);
}

TEST_CASE("a portfolio asks for states of 8 bits where they are allowed", "[program]") {
  const TemporaryFolder folder;
  const std::string question = " --optimizer adam " + question_about(folder, 1);
  const json exact = json::parse(plimsoll("simulate --json " + question + "'portfolio(effort=0)'").out);
  CHECK(exact["strategy"] == "portfolio(effort=0)");
  const json made = json::parse(plimsoll("simulate --json " + question + "'portfolio(effort=0,eight_bit=yes)'").out);
  REQUIRE(made["candidates"].size() == 2);
  CHECK(made["candidates"][1]["strategy"] == "adam8bit|portfolio(effort=0,eight_bit=yes)");
  CHECK(made["candidates"][1]["makespan_s"].is_number());
}

}  // namespace plimsoll
