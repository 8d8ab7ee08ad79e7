// Searches of whole plans in the frame of `cluster`: on graphs of operators that no formula makes.

#include <catch2/catch.hpp>
#include <fstream>
#include <optional>
#include <span>
#include <string>

#include "experiments/study/choice/cluster_question.h"
#include "experiments/study/model.h"
#include "platforms/platform_file.h"
#include "sim/core/tolerance.h"
#include "strategies/compose/spec.h"
#include "tests/experiments/temporary_folder.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"
#include "traces/trace_file.h"

namespace plimsoll {
namespace {

/// A graph in a file, which says nothing of the formula that it is from, and a machine of some devices.
struct PlannedFiles {
  PlannedFiles(const std::string& model, std::uint32_t devices, double link) {
    std::ofstream(machine())
        << "format: plimsoll.platform.v1\nname: machine\nsource: made up\ndevices:\n"
           "  - {name: gpu, count: " +
               std::to_string(devices) +
               ", memory: 1 GB, peak: {bf16: 10 TFLOPS, fp32: 5 TFLOPS}, memory_bandwidth: 100 GBps, "
               "launch_overhead: 1 us}\nswitches:\n  - {name: inside}\nlinks:\n"
               "  - {name: fast, between: [gpu, inside], bandwidth: " +
               std::to_string(link) + " GBps, latency: 1 us}\n";
    write_trace(trace(), load_model(model));
  }

  std::string machine() const { return (folder / "machine.yaml").string(); }
  std::string trace() const { return (folder / "trace.json").string(); }

  Question question(const std::string& strategy, std::uint32_t micro_batches, Optimizer optimizer) const {
    return {.trace = trace(),
            .platform = machine(),
            .strategy = parse_pipeline(strategy, "test"),
            .micro_batches = micro_batches,
            .optimizer = optimizer,
            .engine = Engine::event};
  }

  TemporaryFolder folder;
};

std::string planned_model(std::uint32_t layers, std::uint32_t width) {
  return "transformer:layers=" + std::to_string(layers) + ",width=" + std::to_string(width) +
         ",heads=4,sequence=32,vocabulary=96,view=graph";
}

}  // namespace

TEST_CASE("no plan of a search is faster or smaller than a cluster's bounds of it", "[cluster][planners][eleventh-9]") {
  std::size_t checked = 0;
  for (const RandomCase seed : fewer_cases(1, 33, 33)) {
    Random random(seed);
    const PlannedFiles files(planned_model(random.between(1, 3), 32 * random.between(1, 4)), 1U << random.between(1, 2),
                             1.0 + random.below(60));
    const Question question = files.question("cluster(planners=hsm2dl+alpa+piper+placement)", random.between(1, 4),
                                             random.chance(0.7) ? Optimizer::adam : Optimizer::none);
    const Trace trace = load_model(files.trace());
    const Platform platform = load_platform(files.machine());
    ClusterProblems problems(question, trace, platform);
    const ClusterQuestion asked = problems.question();
    const ClusterAnswer bounded = cluster_bounds(asked, question.strategy.passes.front().options.as<ClusterOptions>());
    CHECK(bounded.rows.size() == 12);
    for (const ClusterRow& row : bounded.rows) {
      const ClusterOutcome outcome = asked.outcome(row.point, row.as());
      CAPTURE(row.as().text, outcome.reason);
      CHECK(row.bound > Seconds{});
      if (!outcome.makespan) continue;
      ++checked;
      CHECK(row.bound.value <= outcome.makespan->value * (1 + sum_tolerance));
      CHECK(row.memory.total() <= outcome.peak);
      Question in_simgrid = problems.of(row.point, row.as());
      in_simgrid.engine = Engine::simgrid;
      const BudgetedProblem made = budgeted_problem_of(in_simgrid, trace, platform);
      const Answer found = answer(in_simgrid, made.problem, std::span(&made.budget, 1)).front();
      REQUIRE(found.feasible());
      CHECK(row.bound.value <= found.metrics->makespan.value * (1 + sum_tolerance));
    }
  }
  if (every_case()) CHECK(checked > 150U);
}

TEST_CASE("a cluster leaves out a saver that a searched graph has no ops for", "[cluster][planners]") {
  const PlannedFiles files("mlp:layers=3,width=32,view=graph", 2, 20);
  const Question question = files.question("cluster(planners=none+hsm2dl,saver=none+core)", 1, Optimizer::none);
  const Trace trace = load_model(files.trace());
  const Platform platform = load_platform(files.machine());
  const AnsweredQuestion made = answered_by_cluster(question, trace, platform);
  CHECK(made.answer.feasible());
  CHECK(made.answer.note.find(" cannot be") != std::string::npos);
}

TEST_CASE("a cluster asks searches of a graph that no formula makes, and is no slower than they",
          "[cluster][planners][turn-14]") {
  for (const RandomCase seed : fewer_cases(1, 11, 11)) {
    Random random(seed);
    const PlannedFiles files(planned_model(random.between(1, 2), 64), 1U << random.between(1, 2),
                             10.0 + random.below(60));
    const Trace trace = load_model(files.trace());
    const Platform platform = load_platform(files.machine());
    const std::uint32_t micro_batches = random.between(1, 2);
    const auto makespan = [&](const std::string& strategy) -> std::optional<double> {
      const Question question = files.question(strategy, micro_batches, Optimizer::adam);
      if (asks_cluster(question)) {
        const AnsweredQuestion made = answered_by_cluster(question, trace, platform);
        REQUIRE(made.answer.feasible());
        return made.answer.metrics->makespan.value;
      }
      try {
        const BudgetedProblem made = budgeted_problem_of(question, trace, platform);
        const Answer found = answer(question, made.problem, std::span(&made.budget, 1)).front();
        if (found.feasible()) return found.metrics->makespan.value;
      } catch (const InputError&) {  // it cannot treat the graph
      }
      return std::nullopt;
    };
    const double all = *makespan("cluster(points=100000)");
    CHECK(all <= *makespan("cluster(points=100000,planners=none)") * (1 + sum_tolerance));
    for (const std::string planner : {"hsm2dl", "alpa", "piper", "auto"}) {
      const std::optional<double> alone = makespan(planner);
      CAPTURE(planner, micro_batches);
      if (alone) CHECK(all <= *alone * (1 + sum_tolerance));
    }
  }
}

}  // namespace plimsoll
