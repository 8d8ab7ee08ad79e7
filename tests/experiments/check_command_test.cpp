// check and plan as scripts use them: what the verdict says, its exit code, and that a plan is held to its promise.

#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/experiments/run_program.h"

namespace plimsoll {
namespace {

constexpr const char* on_ideal = " --trace tests/experiments/worked_example.json --platform ideal ";

/// A planned schedule on the ideal platform, in a file that tests change.
struct Planned {
  TemporaryFolder folder;
  std::string file = (folder / "planned.json").string();
  nlohmann::json schedule;

  Planned() {
    REQUIRE(plimsoll(std::string("plan --strategy store_all -o ") + file + on_ideal).exit_code == 0);
    schedule = nlohmann::json::parse(text_of(file));
  }

  ProgramRun judged(const std::string& options = "") {
    std::ofstream(file) << schedule.dump();
    return plimsoll("check --schedule " + file + on_ideal + options);
  }
};

TEST_CASE("check exits with 1 where a schedule does not fit, though it is legal", "[program]") {
  Planned planned;
  planned.schedule["memory_budget_bytes"] = 22;
  CHECK(planned.judged().exit_code == 0);
  planned.schedule["memory_budget_bytes"] = 21;
  const ProgramRun run = planned.judged();
  CHECK(run.exit_code == 1);
  CHECK(run.out == "legal: 6 steps, 7.00 s, peak 22 B, over its budget of 21 B on 'gpu'\n");
  const nlohmann::json verdict = nlohmann::json::parse(planned.judged("--json").out);
  CHECK(verdict["legal"] == true);
  CHECK(verdict["fits"] == false);
  CHECK(verdict["over"] == nlohmann::json::parse(R"([{"memory":"gpu","peak_bytes":22,"limit_bytes":21}])"));
}

TEST_CASE("costs that a file declares as measured are let be, and the verdict says so", "[program]") {
  Planned planned;
  planned.schedule["steps"][1]["work_s"] = 0.5;
  CHECK(planned.judged().exit_code == 1);
  CHECK(planned.judged().err.find("wrong_cost: step 1 ('second', micro-batch 0) states 0.5") != std::string::npos);
  planned.schedule["steps"][1]["measured"] = true;
  const ProgramRun run = planned.judged();
  CHECK(run.exit_code == 0);
  CHECK(run.out ==
        "legal: 6 steps, 6.50 s, peak 22 B; 1 of the steps state times and workspaces as measured, which no model "
        "confirms\n");
  CHECK(nlohmann::json::parse(planned.judged("--json").out)["measured_steps"] == 1);
}

TEST_CASE("a number of micro-batches or replicas beyond the steps is refused at once", "[program]") {
  for (const char* key : {"micro_batches", "replicas"}) {
    Planned planned;
    planned.schedule[key] = 4294967294U;
    const ProgramRun run = planned.judged();
    CHECK(run.exit_code == 1);
    CHECK(run.err.find("take more than the 6 steps there are") != std::string::npos);
  }
}

/// The ideal platform, but for a host of this size.
std::string with_host(const TemporaryFolder& folder, const std::string& size) {
  const std::string file = (folder / "small_host.yaml").string();
  std::ofstream(file) << "format: plimsoll.platform.v1\n"
                         "name: small_host\n"
                         "source: \"made for a test\"\n"
                         "devices:\n"
                         "  - {name: gpu, memory: unlimited, launch_overhead: 0 s, times: trace}\n"
                         "memories:\n"
                         "  - {name: host, size: "
                      << size
                      << ", bandwidth: unlimited, adam: 1 GBps}\n"
                         "links:\n"
                         "  - {name: copy, between: [gpu, host], bandwidth: unlimited, latency: 0 s}\n";
  return file;
}

TEST_CASE("a host that is too small is judged as a device is", "[program]") {
  const TemporaryFolder folder;
  const std::string model = " --trace random:stages=4,seed=1 --platform ";
  const std::string question = "--strategy zero_offload --optimizer adam" + model;
  const std::string file = (folder / "planned.json").string();
  REQUIRE(plimsoll("plan " + question + with_host(folder, "1 GB") + " -o " + file).exit_code == 0);
  const std::string check = "check --json --schedule " + file + model;
  CHECK(plimsoll(check + with_host(folder, "1 GB")).exit_code == 0);
  const ProgramRun run = plimsoll(check + with_host(folder, "1 MB"));
  CHECK(run.exit_code == 1);
  const nlohmann::json verdict = nlohmann::json::parse(run.out);
  CHECK(verdict["legal"] == true);
  CHECK(verdict["fits"] == false);
  REQUIRE(verdict["over"].size() == 1);
  CHECK(verdict["over"][0]["memory"] == "host");
  CHECK(verdict["over"][0]["limit_bytes"] == 1'000'000);
  const std::string peak = std::to_string(verdict["over"][0]["peak_bytes"].get<std::int64_t>());
  const ProgramRun simulated = plimsoll("simulate " + question + with_host(folder, "1 MB"));
  CHECK(simulated.exit_code == 1);
  CHECK(simulated.err ==
        "infeasible: zero_offload within unlimited memory: it needs " + peak + " B of 'host', which has 1000000 B\n");
}

TEST_CASE("plan says on which engine its schedule was held to its promise, and what an allocator takes", "[program]") {
  for (const std::string engine : {"simgrid", "event"}) {
    const ProgramRun run =
        plimsoll("plan --strategy rotor --memory 20B --allocator cuda --engine " + engine + on_ideal);
    CHECK(run.exit_code == 0);
    CHECK(run.err ==
          "legal, 8.00 s, peak 20 B, 2097152 B reserved by the cuda allocator (by the " + engine + " engine)\n");
    CHECK(nlohmann::json::parse(run.out)["format"] == "plimsoll.schedule.v2");
  }
}

}  // namespace
}  // namespace plimsoll
