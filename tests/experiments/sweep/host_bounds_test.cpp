// Results that rest on a host's rate which the platform's file calls an upper bound say so, in words and in JSON.

#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/experiments/run_program.h"
#include "tests/experiments/temporary_folder.h"

namespace plimsoll {
namespace {

/// A question on a GPU whose host has the given bandwidth and moves 0.7 GB/s for updates.
std::string question_on(const TemporaryFolder& folder, const std::string& bandwidth, const std::string& bounds) {
  const std::string platform = (folder / "bounded.yaml").string();
  std::ofstream(platform) << "format: plimsoll.platform.v1\nname: bounded\nsource: none\n"
                             "devices: [{name: gpu, memory: unlimited, times: trace}]\n"
                             "memories: [{name: host, size: unlimited, adam: 100 MBps, bandwidth: "
                          << bandwidth << ", bounds: " << bounds
                          << "}]\nlinks: [{name: pcie, between: [gpu, host], bandwidth: 2 GBps, latency: 0 s}]\n";
  return "--platform " + platform +
         " --trace 'uniform:stages=2,forward=1 s,backward=1 s,parameters=100 MB' --optimizer adam --strategy ";
}

nlohmann::json bounds_of(const std::string& question) {
  return nlohmann::json::parse(plimsoll("simulate --json " + question).out)["upper_bounds_used"];
}

constexpr const char* updates =
    "the update rate of memory 'host' is an upper bound, not a measurement: 100.00 MB/s (adam)";
constexpr const char* copies =
    "the bandwidth of memory 'host' is an upper bound, not a measurement: 1.00 GB/s (bandwidth)";

}  // namespace

TEST_CASE("simulate and plan name the bounds of the host that a schedule rests on", "[program]") {
  const TemporaryFolder folder;
  const std::string question = question_on(folder, "1 GBps", "[bandwidth, adam]");
  const nlohmann::json used = bounds_of(question + "zero_offload");
  REQUIRE(used.size() == 2);
  CHECK(used[0] == nlohmann::json{{"memory", "host"}, {"rate", "adam"}, {"bytes_per_s", 1e8}});
  CHECK(used[1] == nlohmann::json{{"memory", "host"}, {"rate", "bandwidth"}, {"bytes_per_s", 1e9}});
  const ProgramRun run = plimsoll("simulate " + question + "zero_offload");
  CHECK(run.out.find(std::string("  ") + updates + "\n  " + copies + "\n") != std::string::npos);
  const ProgramRun plan = plimsoll("plan " + question + "zero_offload");
  CHECK(plan.err.find(std::string("note: ") + updates + "\nnote: " + copies + "\n") != std::string::npos);
}

TEST_CASE("bounds that a schedule does not come near, and measured rates, are not named", "[program]") {
  const TemporaryFolder folder;
  CHECK(bounds_of(question_on(folder, "1 GBps", "[bandwidth, adam]") + "store_all").empty());
  // Two ways of 2 GB/s and updates of 0.7 do not fill 4.7 GB/s.
  const nlohmann::json updating = bounds_of(question_on(folder, "4.7 GBps", "[bandwidth, adam]") + "zero_offload");
  REQUIRE(updating.size() == 1);
  CHECK(updating[0]["rate"] == "adam");
  CHECK(bounds_of(question_on(folder, "1 GBps", "[]") + "zero_offload").empty());
}

}  // namespace plimsoll
