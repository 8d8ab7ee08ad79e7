// Experiments of papers: what they ask gives the published figures.

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/experiments/run_program.h"

namespace plimsoll {
namespace {

struct Published {
  const char* strategy;
  std::array<double, 3> idle;  ///< on 16, 24 and 32 devices
};

// Qi et al. 2024, arXiv version: the table's rows 16/48, 24/72 and 32/96, and their figures by limits of memory.
// `interleaved` is with the dependency that the published program leaves out (docs/papers).
constexpr Published zero_bubble[] = {
    {"1f1b", {.2668, .2699, .2676}},
    {"interleaved", {.1549, .1566, .1549}},
    {"zb_h1", {.1536, .1439, .1429}},
    {"zb_h2", {.0823, .0628, .0629}},
    {"zb_auto(orders=published)", {.1536, .1439, .1429}},
    {"zb_auto(limit=1.25,orders=published)", {.0998, .0911, .0907}},
    {"zb_auto(limit=1.5,orders=published)", {.0632, .0659, .0654}},
    {"zb_auto(limit=2,orders=published)", {.0077, .0111, .0104}},
    {"zb_auto(limit=3,orders=published)", {.0077, 0, 0}},
    {"zb_v(orders=published)", {.0697, .0638, .0593}},
    {"zb_v(limit=1.25,orders=published)", {.0306, .0222, .0177}},
    {"zb_v(limit=1.5,orders=published)", {.0065, .0039, .0032}},
    {"zb_v(limit=2,orders=published)", {.0035, .0039, .0032}},
    {"zb_v(limit=3,orders=published)", {.0035, .0039, .0032}},
};

TEST_CASE("zero bubble's experiment gives the published idle shares, in seconds as in microseconds",
          "[papers][turn-4]") {
  const std::string folder = "experiments/papers/zero_bubble/",
                    experiment = text_of("experiments/papers/zero_bubble.yaml");
  constexpr std::array devices{16, 24, 32};
  constexpr std::array work_us{28814 + 28760 + 19352, 13526 + 13938 + 10502, 18916 + 19496 + 14576};
  for (const Published& row : zero_bubble) {
    CHECK(experiment.find(row.strategy) != std::string::npos);
    for (std::size_t i = 0; i < devices.size(); ++i) {
      const std::string p = std::to_string(devices.at(i)), m = std::to_string(3 * devices.at(i));
      INFO(row.strategy << " on " << p << " devices");
      const ProgramRun run =
          plimsoll("simulate --json --engine event -t " + folder + "gpt_" + p + ".json -p " + folder + "devices_" + p +
                   ".yaml --micro-batches " + m + " -s '" + row.strategy + "'");
      REQUIRE(run.exit_code == 0);
      const double longest = nlohmann::json::parse(run.out)["longest_stage_s"];
      const double idle = 1 - 3 * devices.at(i) * work_us.at(i) * 1e-6 / longest;
      CHECK(std::abs(std::round(idle * 1e4) / 1e4 - row.idle.at(i)) < 1e-9);
    }
  }
}

// Qi et al. 2024, "Pipeline parallelism with controllable memory": parts kept on 4, 8 and 16 devices with 3
// micro-batches each, and how much longer than 6 m the longest of 8 devices takes; v_min is one shorter than published
// (docs/papers).
TEST_CASE("controllable memory's experiment gives the published memory and idle time", "[papers]") {
  struct Pattern {
    const char* strategy;
    std::array<int, 3> parts;
    double idle_ms;
  };
  const std::string folder = "experiments/papers/controllable_memory/",
                    experiment = text_of("experiments/papers/controllable_memory.yaml");
  for (const Pattern& row :
       {Pattern{"1f1b", {8, 16, 32}, 42}, Pattern{"v_half(pattern=1f1b_v)", {6, 12, 22}, 33},
        Pattern{"v_min", {4, 8, 12}, 23}, Pattern{"v_half", {6, 10, 18}, 17}, Pattern{"zb_v", {8, 16, 32}, 0}}) {
    CHECK(experiment.find(row.strategy) != std::string::npos);
    constexpr std::array devices{4, 8, 16};
    for (std::size_t i = 0; i < devices.size(); ++i) {
      const std::string p = std::to_string(devices.at(i)), m = std::to_string(3 * devices.at(i));
      INFO(row.strategy << " on " << p << " devices");
      const ProgramRun run =
          plimsoll("simulate --json --engine event -t " + folder + "unit_" + p + ".json -p " + folder + "devices_" + p +
                   ".yaml --micro-batches " + m + " -s '" + row.strategy + "'");
      REQUIRE(run.exit_code == 0);
      const nlohmann::json made = nlohmann::json::parse(run.out);
      CHECK(made["peak_bytes"] == row.parts.at(i) * 1'000'000);
      if (devices.at(i) == 8) CHECK(made["longest_stage_s"].get<double>() * 1e3 == Approx(6 * 24 + row.idle_ms));
    }
  }
}

// Narayanan et al. 2019, VGG-16 on four GPUs: 0.1757 s a mini-batch in the steady state, 0.2055 s where transfers count
// one after the other. Here a flush of 48 mini-batches fills, drains and sums gradients once.
TEST_CASE("pipedream's experiment runs its stages with replicas nearly as fast as planned", "[papers]") {
  const std::string folder = "experiments/papers/pipedream/", experiment = text_of("experiments/papers/pipedream.yaml");
  const auto simulated = [&](const std::string& strategy) {
    CHECK(experiment.find(strategy) != std::string::npos);
    const ProgramRun run = plimsoll("simulate --json --engine event -t " + folder + "vgg16.json -p " + folder +
                                    "gpus_4.yaml --micro-batches 48 -s '" + strategy + "'");
    REQUIRE(run.exit_code == 0);
    return nlohmann::json::parse(run.out);
  };
  const nlohmann::json made = simulated("1f1b(cut=pipedream)");
  CHECK(made["makespan_s"].get<double>() / 48 == Approx(0.18674).epsilon(1e-4));
  std::vector<int> in_flight;
  for (const nlohmann::json& device : made["devices"]) in_flight.push_back(device["micro_batches_in_flight"]);
  CHECK(in_flight == std::vector{2, 2, 2, 1});
  CHECK(simulated("1f1b(cut=0x4)")["makespan_s"].get<double>() / 48 == Approx(0.17630).epsilon(1e-4));
  CHECK(simulated("1f1b(cut=joint)")["makespan_s"] <= simulated("1f1b(cut=0x4)")["makespan_s"]);
}

TEST_CASE("hsm2dl's experiment asks optcnn about no model whose tables are too large", "[papers][turn-6]") {
  const TemporaryFolder folder;
  const std::string sweep = "sweep experiments/papers/hsm2dl.yaml -q -o " + (folder / "out").string();
  const ProgramRun run = plimsoll(sweep + " --set \"strategies=['optcnn(collectives=fastest)']\"");
  CHECK(run.err == "");
  CHECK(run.exit_code == 0);
  const std::string results = text_of(folder / "out" / "results.jsonl");
  CHECK(std::ranges::count(results, '\n') == 10);
}

}  // namespace
}  // namespace plimsoll
