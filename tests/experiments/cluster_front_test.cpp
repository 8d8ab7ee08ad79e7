// The front of `cluster` against searches within one memory each, and sweeps that ask `cluster`.

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "experiments/study/choice/cluster_question.h"
#include "experiments/study/model.h"
#include "platforms/platform_file.h"
#include "strategies/compose/spec.h"
#include "tests/experiments/run_program.h"
#include "tests/experiments/temporary_folder.h"

namespace plimsoll {
namespace {

const std::string small_front_model = "transformer:layers=2,width=64,heads=8,sequence=32,vocabulary=96,view=graph";
const std::string small_front_options = "cluster(chunks=2,micro_batch=1+2,schedule=none+1f1b,points=100000)";

std::string front_machine(std::uint32_t nodes, const std::string& network) {
  return "format: plimsoll.platform.v1\nname: machine\nsource: made up\nnodes: " + std::to_string(nodes) +
         "\ndevices:\n  - {name: gpu, count: 2, memory: 1 GB, peak: {bf16: 10 TFLOPS}, memory_bandwidth: 100 GBps, "
         "launch_overhead: 1 us}\n"
         "memories:\n  - {name: host, size: 100 GB}\n"
         "switches:\n  - {name: inside}\n  - {name: fabric, scope: cluster}\n"
         "links:\n  - {name: fast, between: [gpu, inside], bandwidth: 20 GBps, latency: 1 us}\n"
         "  - {name: slow, between: [inside, fabric], bandwidth: " +
         network +
         ", latency: 5 us}\n"
         "  - {name: bus, between: [gpu, host], bandwidth: 10 GBps, latency: 2 us}\n";
}

struct FrontAsked {
  Question question{.trace = small_front_model,
                    .platform = "machine.yaml",
                    .strategy = parse_pipeline(small_front_options, "test"),
                    .micro_batches = 8,
                    .optimizer = Optimizer::adam,
                    .engine = Engine::event};
  Trace trace = load_model(question.trace);
  Platform platform = parse_platform(front_machine(2, "5 GBps"), "machine.yaml");

  Answer within(Bytes memory) const {
    Question asked = question;
    asked.memory = memory;
    return answered_by_cluster(asked, trace, platform).answer;
  }
};

}  // namespace

TEST_CASE("the front of a cluster is that of searches within each memory by itself", "[cluster][eleventh-7]") {
  const FrontAsked asked;
  const std::vector<AnsweredQuestion> front = front_of_cluster(asked.question, asked.trace, asked.platform);
  REQUIRE(front.size() > 4);
  std::optional<Answer> more;
  for (const AnsweredQuestion& each : front) {
    REQUIRE(each.answer.feasible());
    const Bytes peak = each.answer.metrics->peak;
    CAPTURE(each.question.strategy.text, peak.count);
    CHECK(each.answer.budget == peak);
    const Answer alone = asked.within(more ? more->metrics->peak - Bytes{1} : peak + Bytes{1'000'000'000});
    REQUIRE(alone.feasible());
    CHECK(alone.metrics->makespan.value == each.answer.metrics->makespan.value);
    CHECK(alone.metrics->peak == peak);
    CHECK(alone.gap == each.answer.gap);
    if (more) {
      CHECK(peak < more->metrics->peak);
      CHECK(each.answer.metrics->makespan >= more->metrics->makespan);
    }
    more = each.answer;
  }
  const Answer none = asked.within(front.back().answer.metrics->peak - Bytes{1});
  CHECK_FALSE(none.feasible());
  CHECK(none.smallest_feasible == front.back().answer.metrics->peak);
}

TEST_CASE("simulate prints the front of a cluster with its plans", "[cluster][program]") {
  const TemporaryFolder folder;
  const std::string platform = (folder / "machine.yaml").string();
  std::ofstream(platform) << front_machine(1, "5 GBps");
  const std::string asks = "simulate --engine event --micro-batches 4 --optimizer adam -t " + small_front_model +
                           " -p " + platform + " -s 'cluster(schedule=none+1f1b,micro_batch=1)' --memory front";
  const ProgramRun table = plimsoll(asks), json = plimsoll(asks + " --json");
  REQUIRE(table.exit_code == 0);
  REQUIRE(json.exit_code == 0);
  CHECK(table.out.find("above bound  plan\n") != std::string::npos);
  const nlohmann::json front = nlohmann::json::parse(json.out)["front"];
  REQUIRE(front.size() > 2);
  std::int64_t peak = 0;
  double makespan = 1e9;
  for (const nlohmann::json& point : front) {
    CHECK(point["peak_bytes"] > peak);
    CHECK(point["makespan_s"] < makespan);
    peak = point["peak_bytes"];
    makespan = point["makespan_s"];
    CHECK(table.out.find("  " + point["strategy"].get<std::string>() + ", 1 a micro-batch\n") != std::string::npos);
  }
}

TEST_CASE("a sweep asks a cluster as simulate does, for each memory", "[cluster][program][sweep][eleventh-6]") {
  const TemporaryFolder folder;
  std::ofstream(folder / "machine.yaml") << front_machine(2, "5 GBps");
  std::ofstream(folder / "sweep.yaml")
      << "format: plimsoll.experiment.v1\nname: clusters\ntraces: ['" + small_front_model +
             "']\nplatforms: [machine.yaml]\nstrategies: ['" + small_front_options +
             "', greedy_recompute]\nmicro_batches: [4, 8]\noptimizer: adam\nengine: event\n"
             "memory: [capacity, 2 MB, 100 kB]\n";
  const std::string out = (folder / "out").string();
  REQUIRE(plimsoll("sweep " + (folder / "sweep.yaml").string() + " -o " + out + " -j 2").exit_code == 0);
  std::ifstream lines(folder / "out" / "results.jsonl");
  std::size_t compared = 0;
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json record = nlohmann::json::parse(line);
    CHECK(record["trace"] == small_front_model);
    if (record["strategy"] != small_front_options) continue;
    const std::int64_t memory = record["memory_budget_bytes"];
    const int micro_batches = record["micro_batches"];
    const ProgramRun run =
        plimsoll("simulate --json --engine event --optimizer adam -t " + small_front_model + " -p " +
                 (folder / "machine.yaml").string() + " -s '" + small_front_options + "' --micro-batches " +
                 std::to_string(micro_batches) + " -m '" + std::to_string(memory) + " B'");
    const nlohmann::json alone = nlohmann::json::parse(run.out);
    CAPTURE(memory, micro_batches);
    CHECK(run.exit_code == (record["feasible"] ? 0 : 1));
    for (const char* key :
         {"feasible", "makespan_s", "peak_bytes", "gap", "note", "candidates", "smallest_feasible_bytes"}) {
      CAPTURE(key);
      CHECK(record[key] == alone[key]);
    }
    ++compared;
  }
  CHECK(compared == 6);
}

}  // namespace plimsoll
