// How many devices share out operators, where a pipeline follows and the number is left open.

#include <catch2/catch.hpp>

#include <algorithm>
#include <limits>
#include <string>

#include "platforms/platform_file.h"
#include "sim/engine/event/event_engine.h"
#include "sim/io/input_error.h"
#include "sim/judge/check.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "tests/bad_input.h"
#include "traces/models/synthetic.h"

using namespace plimsoll;

namespace {

Problem transformer_on(const char* platform) {
  auto made = make_problem(synthetic_model("transformer:layers=4,width=1024,heads=8,sequence=512,batch=4,"
                                           "vocabulary=4096,view=graph"),
                           load_platform(platform), {.micro_batches = 8, .optimizer = Optimizer::adam});
  return std::get<Problem>(std::move(made));
}

/// Simulated within the device's capacity, and judged by check().
Seconds simulated_time(const Problem& problem, const std::string& spec) {
  const std::vector<Pass> passes = parse_spec(spec, "test");
  const Problem split = transformed(problem, passes);
  const PlanOutcome outcome = plan(split, passes, split.platform[split.platform.devices.front().memory].capacity);
  if (std::holds_alternative<Infeasible>(outcome)) return Seconds{std::numeric_limits<double>::infinity()};
  const Plan& made = std::get<Plan>(outcome);
  for (const Violation& found : check(made.schedule, split.graph, split.platform)) FAIL_CHECK(found.what);
  const Timeline timeline = simulate_event(made.schedule, split.platform);
  CHECK(timeline.makespan.value == Approx(made.makespan.value).epsilon(1e-9));
  return timeline.makespan;
}

}  // namespace

TEST_CASE("the width in front of a pipeline is the fastest of all", "[hybrid][turn-32]") {
  for (const char* platform : {"h100_sxm_8", "pcie_4x_rtx4090"}) {
    const Problem problem = transformer_on(platform);
    for (const auto& [search, behind] : {std::pair("hsm2dl", "|1f1b(cut=joint)"), std::pair("optcnn", "|1f1b|rotor"),
                                         std::pair("hsm2dl", "|gpipe(stages=2)")}) {
      CAPTURE(platform, search, behind);
      const std::string name = search;
      Seconds best{std::numeric_limits<double>::infinity()};
      for (std::uint32_t t = 1; t <= problem.platform.devices.size(); t *= 2) {
        const std::string spec = name + "(devices=" + std::to_string(t) + ")" + behind;
        try {
          best = std::min(best, simulated_time(problem, spec));
        } catch (const InputError&) {  // fewer devices are left than stages are asked for
          CHECK(std::string(behind) == "|gpipe(stages=2)");
        }
      }
      CHECK(simulated_time(problem, name + behind) == best);
    }
  }
}

// Rows are shared out among all three, over links that take no time.
TEST_CASE("all devices are a width too where they are no power of two", "[hybrid]") {
  const Platform platform = parse_platform(
      "format: plimsoll.platform.v1\nname: three\nsource: made up\n"
      "devices:\n  - {name: gpu, count: 3, memory: 10 GB, peak: {bf16: 10 TFLOPS}, memory_bandwidth: 100 GBps}\n"
      "memories:\n  - {name: host, size: 100 GB, bandwidth: 50 GBps}\n"
      "links:\n  - {name: fast, between: [gpu, gpu], bandwidth: 1000 TBps, latency: 0 s}\n"
      "  - {name: bus, between: [gpu, host], bandwidth: 10 GBps, latency: 2 us}\n",
      "three.yaml");
  auto made = make_problem(synthetic_model("transformer:layers=1,width=96,heads=6,sequence=12,batch=6,vocabulary=48,"
                                           "view=graph"),
                           platform, {.micro_batches = 1});
  const Problem split = transformed(std::get<Problem>(made), parse_spec("optcnn|1f1b(stages=1)", "test"));
  CHECK(std::ranges::any_of(split.notes, [](const std::string& note) {
    return note.starts_with("optcnn(devices=3) was the best of all tried");
  }));
}

// Of ops cut among ranks nobody knows which of their dimensions is the sequence.
TEST_CASE("a pipeline that cannot be at any width says why by itself", "[hybrid]") {
  auto made = make_problem(
      synthetic_model("transformer:layers=1,width=64,heads=4,sequence=16,batch=4,vocabulary=32,view=graph"),
      load_platform("h100_sxm_8"), {.micro_batches = 4, .optimizer = Optimizer::adam});
  Problem problem = std::get<Problem>(std::move(made));
  problem.graph.name = "graph";
  for (const std::string search : {"hsm2dl", "optcnn"}) {
    for (const std::string slices : {"", "(slices=1)", "(slices=2,backward=split)"}) {
      CAPTURE(search, slices);
      const std::vector<Pass> passes = parse_spec(search + "|seq1f1b" + slices, "test");
      CHECK(complaint_of([&] { transformed(problem, passes); }) ==
            "seq1f1b: 'graph' is a graph, and only chains have sequences to slice");
    }
    const std::vector<Pass> passes = parse_spec(search + "|1f1b(stages=9)", "test");
    CHECK(complaint_of([&] { transformed(problem, passes); }) ==
          "1f1b: stages=9, and platform 'h100_sxm_8' has 8 devices");
  }
}

TEST_CASE("alpa pipelines by itself where it is asked to", "[hybrid]") {
  const Problem problem = transformer_on("pcie_4x_rtx4090");
  const Seconds both = simulated_time(problem, "alpa(pipeline=yes)");
  CHECK(both == simulated_time(problem, "alpa|1f1b(cut=alpa)"));
  CHECK(both <= simulated_time(problem, "alpa(devices=2)|1f1b(cut=alpa)"));
  CHECK(both < simulated_time(problem, "alpa"));
  simulated_time(problem, "alpa(pipeline=yes)|rotor");
  CHECK(complaint_of([] { parse_spec("alpa(pipeline=yes)|gpipe", "test"); }) ==
        "test:1:20: 'gpipe' cannot follow '1f1b': both are pipelining strategies, and one part has one");
}

// Where the models' states fill a device, what fits comes before what is fast.
TEST_CASE("a width that fits comes before faster ones that do not", "[hybrid]") {
  Problem problem = transformer_on("pcie_4x_rtx4090");
  Bytes least{std::numeric_limits<std::int64_t>::max()};
  for (const char* spec : {"optcnn(devices=1)|1f1b", "optcnn(devices=2)|1f1b", "optcnn(devices=4)|1f1b"}) {
    const std::vector<Pass> passes = parse_spec(spec, "test");
    const PlanOutcome outcome = plan(transformed(problem, passes), passes, std::nullopt);
    least = std::min(least, std::get<Plan>(outcome).peak);
  }
  for (const Device& device : problem.platform.devices) problem.platform.memories[device.memory.index].capacity = least;
  CHECK(simulated_time(problem, "optcnn|1f1b") < Seconds{std::numeric_limits<double>::infinity()});
}
