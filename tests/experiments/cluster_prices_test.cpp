// `cluster(prices=yes)`: each price is the answer to the changed question, asked by itself.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "experiments/study/choice/changed_platform.h"
#include "platforms/platform_file.h"
#include "sim/core/platform.h"
#include "tests/experiments/run_program.h"
#include "tests/experiments/temporary_folder.h"

namespace plimsoll {
namespace {

struct PricedMachine {
  std::uint32_t gpus = 4;
  double fast = 20, bus = 10;  ///< GB/s
};

std::string priced_platform(const PricedMachine& of) {
  return "format: plimsoll.platform.v1\nname: machine\nsource: made up\ndevices:\n  - {name: gpu, count: " +
         std::to_string(of.gpus) +
         ", memory: 1 GB, peak: {bf16: 10 TFLOPS}, memory_bandwidth: 100 GBps, launch_overhead: 1 us}\n"
         "memories:\n  - {name: host, size: 100 GB}\nswitches:\n  - {name: inside}\n"
         "links:\n  - {name: fast, between: [gpu, inside], bandwidth: " +
         std::to_string(of.fast) +
         " GBps, latency: 1 us}\n  - {name: bus, between: [gpu, host], bandwidth: " + std::to_string(of.bus) +
         " GBps, latency: 2 us}\n";
}

/// What `cluster` answers on such a machine, with all points allowed.
nlohmann::json priced(const PricedMachine& machine, const std::string& options, std::int64_t memory) {
  const TemporaryFolder folder;
  const std::string platform = (folder / "machine.yaml").string();
  std::ofstream(platform) << priced_platform(machine);
  const ProgramRun run = plimsoll(
      "simulate --json --trace transformer:layers=3,width=64,heads=8,sequence=32,vocabulary=96,view=graph --platform " +
      platform + " --strategy 'cluster(points=100000,chunks=2," + options +
      ")' --optimizer adam --engine event --micro-batches 8 --memory '" + std::to_string(memory) + " B'");
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  return nlohmann::json::parse(run.out);
}

constexpr std::int64_t priced_memory = 1'600'000;

}  // namespace

TEST_CASE("a price of a cluster is the answer to the changed question", "[cluster][program][turn-7]") {
  const nlohmann::json made = priced({}, "t=1+2+4,prices=yes", priced_memory);
  const auto price = [&](const std::string& change) -> std::optional<nlohmann::json> {
    for (const nlohmann::json& each : made["prices"]) {
      if (each["change"] == change) return each;
    }
    return std::nullopt;
  };
  const auto is_answer = [&](const std::string& change, const nlohmann::json& asked) {
    INFO(change + made["prices"].dump(1));
    REQUIRE(price(change));
    CHECK((*price(change))["strategy"] == asked["strategy"]);
    CHECK((*price(change))["makespan_s"].get<double>() == Approx(asked["makespan_s"].get<double>()).epsilon(1e-12));
    CHECK((*price(change))["proven"] == true);
  };
  is_answer("1 GB more a device", priced({}, "t=1+2+4", priced_memory + 1'000'000'000));
  is_answer("twice fast", priced({.fast = 40}, "t=1+2+4", priced_memory));
  is_answer("twice bus", priced({.bus = 20}, "t=1+2+4", priced_memory));
  is_answer("a device more", priced({.gpus = 5}, "t=1+2+4", priced_memory));
  is_answer("a device fewer", priced({.gpus = 3}, "t=1+2", priced_memory));
  // Of ways that the answer does not use, nothing is said.
  const std::string used = made["strategy"];
  const auto uses = [&](const std::string& name) { return used.find(name) != std::string::npos; };
  CHECK(price("without tensor").has_value() == uses("megatron"));
  CHECK(price("without pipelines").has_value() == uses("stages="));
  if (uses("megatron")) is_answer("without tensor", priced({}, "t=1", priced_memory));
  if (uses("stages=")) is_answer("without pipelines", priced({}, "t=1+2+4,p=1", priced_memory));
  for (const nlohmann::json& each : made["prices"]) {
    const std::string change = each["change"];
    if (each["makespan_s"].is_null()) continue;
    const double more = each["makespan_s"].get<double>() / made["makespan_s"].get<double>() - 1;
    CAPTURE(change, more);
    const bool is_restriction = change.starts_with("without") || change == "a device fewer";
    CHECK((is_restriction ? more >= -1e-12 : more <= 1e-12));
  }
}

TEST_CASE("a restriction of a cluster costs what the answer without it takes", "[cluster][program][eleventh-6]") {
  const std::string pipelines = "t=1,p=2-4,d=1,saver=core+full+none,prices=yes";
  const nlohmann::json made = priced({}, pipelines, 4 * priced_memory);
  const std::string used = made["strategy"];
  std::size_t found = 0;
  for (const nlohmann::json& each : made["prices"]) {
    if (each["change"] == "without split backwards") {
      const nlohmann::json asked =
          priced({}, "t=1,p=2-4,d=1,saver=core+full+none,schedule=none+1f1b+interleaved", 4 * priced_memory);
      CHECK(each["makespan_s"].get<double>() == Approx(asked["makespan_s"].get<double>()).epsilon(1e-12));
      CHECK(each["makespan_s"] >= made["makespan_s"]);
      ++found;
    }
    if (each["change"] == "without pipelines") {
      const nlohmann::json asked = priced({}, "t=1,p=1,d=1,saver=core+full+none", 4 * priced_memory);
      CHECK(each["makespan_s"].get<double>() == Approx(asked["makespan_s"].get<double>()).epsilon(1e-12));
      ++found;
    }
  }
  CHECK(found == 2);  // the fastest pipeline of this machine splits its backwards
}

TEST_CASE("another device has the routes of the one that it is like", "[cluster]") {
  for (const char* name : {"a100_sxm_8", "a100_sxm_64", "pcie_4x_rtx4090", "dgx2_16xv100", "h100_pair_cxl"}) {
    CAPTURE(name);
    const Platform before = load_platform(name), after = with_another_device(before);
    REQUIRE(after.devices.size() == before.devices.size() + 1);
    const MemoryId old = after.devices[before.devices.size() - 1].memory, added = after.devices.back().memory;
    for (const Device& device : before.devices) {
      if (device.memory == old) continue;
      const auto of_old = route_between(after, device.memory, old), of_new = route_between(after, device.memory, added);
      REQUIRE(of_old.has_value() == of_new.has_value());
      CHECK(route_between(before, device.memory, before.devices.back().memory)->bandwidth == of_old->bandwidth);
      CHECK(of_old->bandwidth == of_new->bandwidth);
      CHECK(of_old->latency == of_new->latency);
    }
    CHECK(route_between(after, old, added));
    CHECK(memory_at(after, id_at<DeviceId>(before.devices.size()), place::host).has_value() ==
          memory_at(before, id_at<DeviceId>(before.devices.size() - 1), place::host).has_value());
  }
}

}  // namespace plimsoll
