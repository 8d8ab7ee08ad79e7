// A portfolio on several devices, and with states of 8 bits: what it asks and takes, and that others can read it.

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/experiments/run_program.h"
#include "tests/experiments/temporary_folder.h"

namespace plimsoll {
namespace {

using nlohmann::json;

std::string question_about(const TemporaryFolder& folder, int devices, const std::string& parameters = "1 MB") {
  const std::string platform = (folder / "line.yaml").string();
  std::ofstream(platform) << "format: plimsoll.platform.v1\nname: line\nsource: none\n"
                             "devices: [{name: gpu, count: "
                          << devices
                          << ", memory: 20 GB, times: trace, memory_bandwidth: 100 GBps}]\n"
                             "memories: [{name: host, size: 20 GB}]\n"
                             "links: [{name: pcie, between: [gpu, host], bandwidth: 10 GBps, latency: 0 s}"
                          << (devices > 1 ? ", {name: peers, between: [gpu, gpu], bandwidth: 10 GBps, latency: 0 s}"
                                          : "")
                          << "]\n";
  return " --platform " + platform +
         " --trace 'uniform:stages=6,forward=10 ms,backward=20 ms,parameters=" + parameters +
         "' --micro-batches 6 --engine event --strategy ";
}

json answer_to(const std::string& arguments) {
  const ProgramRun run = plimsoll("simulate --json " + arguments);
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  return json::parse(run.out);
}

bool has(const json& candidates, const std::string& strategy) {
  return std::ranges::any_of(candidates, [&](const json& each) { return each["strategy"] == strategy; });
}

}  // namespace

TEST_CASE("a portfolio uses all devices where that is faster, and its schedule is one that check takes", "[program]") {
  const TemporaryFolder folder;
  const std::string question = question_about(folder, 3);
  const json made = answer_to(question + "'portfolio(effort=0)'");
  CHECK(made["strategy"] == "data_parallel");
  // Gradients of 3 GB are summed for longer than a pipeline waits.
  CHECK(answer_to(question_about(folder, 3, "500 MB") + "'portfolio(effort=0)'")["strategy"] == "interleaved");
  for (const char* spec : {"1f1b", "zb_v|rotor", "zero3"}) {
    INFO(spec);
    CHECK(has(made["candidates"], spec));
  }
  CHECK(has(made["candidates"], "rotor"));  // on one device
  CHECK(made["makespan_s"].get<double>() <= answer_to(question + "1f1b")["makespan_s"].get<double>() * (1 + 1e-9));
  CHECK(made["makespan_s"].get<double>() < 0.9 * 6 * 6 * 0.03);
  int taken = 0;
  for (const json& each : made["candidates"]) {
    CHECK(each["strategy"].get<std::string>().find("adam8bit") == std::string::npos);
    if (!each["makespan_s"].is_null()) CHECK(made["makespan_s"] <= each["makespan_s"]);
    if (!each["taken"].get<bool>()) continue;
    ++taken;
    CHECK(each["strategy"] == made["strategy"]);
    CHECK(each["makespan_s"] == made["makespan_s"]);
  }
  CHECK(taken == 1);
  const std::string file = (folder / "schedule.json").string();
  CHECK(plimsoll("plan " + question + "'portfolio(effort=0)' -o " + file).exit_code == 0);
  CHECK(plimsoll("check --schedule " + file).exit_code == 0);
}

TEST_CASE("a portfolio that leaves devices idle says so", "[program]") {
  const TemporaryFolder folder;
  const std::string question = question_about(folder, 3);
  for (const char* spec : {"'portfolio(effort=0,target=pytorch)'", "'portfolio(effort=0)' --memory front"}) {
    INFO(spec);
    const ProgramRun run = plimsoll("simulate --json " + question + spec);
    REQUIRE(run.exit_code == 0);
    const json made = json::parse(run.out);
    CHECK((made.contains("front") ? made["front"][0] : made)["note"] == "uses 1 of 3 devices");
  }
  CHECK(answer_to(question_about(folder, 1) + "'portfolio(effort=0)'")["note"].is_null());
}

TEST_CASE("a portfolio on several devices says what the one of its strategies that needs the least needs",
          "[program]") {
  const TemporaryFolder folder;
  const std::string question = question_about(folder, 3) + "'portfolio(effort=0)' --memory '1 kB'";
  const ProgramRun run = plimsoll("simulate --json " + question);
  CHECK(run.exit_code == 1);
  const json made = json::parse(run.out);
  const std::string least = std::to_string(made["smallest_feasible_bytes"].get<std::int64_t>());
  for (const json& each : made["candidates"]) {
    CHECK(each["makespan_s"].is_null());
    CHECK_FALSE(each["reason"].get<std::string>().empty());
  }
  CHECK(plimsoll("simulate " + question_about(folder, 3) + "'portfolio(effort=0)' --memory '" + least + " B'")
            .exit_code == 0);
}

TEST_CASE("a portfolio asks for states of 8 bits where they are allowed", "[program]") {
  const TemporaryFolder folder;
  const std::string adam = " --optimizer adam --memory '25 MB' " + question_about(folder, 1);  // 29 MB with 32 bits
  CHECK(plimsoll("simulate " + adam + "'portfolio(effort=0)'").exit_code == 1);
  const json made = answer_to(adam + "'portfolio(effort=0,eight_bit=yes)'");
  CHECK(made["strategy"] == "adam8bit|portfolio(effort=0)");
  CHECK(has(made["candidates"], "portfolio(effort=0)"));
  CHECK(has(made["candidates"], "adam8bit|store_all"));
  const std::string several = " --optimizer adam " + question_about(folder, 2);
  CHECK(has(answer_to(several + "'portfolio(effort=0,eight_bit=yes)'")["candidates"], "adam8bit|1f1b"));
  const ProgramRun front = plimsoll("simulate " + several + "'portfolio(effort=0,eight_bit=yes)' --memory front");
  CHECK(front.exit_code == 2);
  CHECK(front.err.find("portfolio: eight_bit=yes is for 'simulate' and 'plan' with portfolio alone") !=
        std::string::npos);
}

TEST_CASE("zero2 and zero3 refuse states of 8 bits on chains, whose updates they make anew", "[program]") {
  const TemporaryFolder folder;
  const std::string question = " --optimizer adam " + question_about(folder, 2);
  for (const char* spec : {"'adam8bit|zero2'", "'adam8bit|zero3|rotor'", "'adam8bit|zero2|1f1b'"}) {
    INFO(spec);
    const ProgramRun run = plimsoll("simulate " + question + spec);
    CHECK(run.exit_code == 2);
    CHECK(run.err.find("makes the updates of shares anew, and a transform before it has changed their states") !=
          std::string::npos);
  }
}

}  // namespace plimsoll
