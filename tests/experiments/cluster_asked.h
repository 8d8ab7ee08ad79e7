#pragma once
// Small questions that ask `cluster`, for its tests: machines, models, the least memory that a space needs, and a
// point's bounds against what both engines make of it.

#include <catch2/catch.hpp>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>

#include "experiments/study/choice/cluster_question.h"
#include "experiments/study/model.h"
#include "platforms/platform_file.h"
#include "sim/core/tolerance.h"
#include "strategies/compose/spec.h"

namespace plimsoll {

struct ClusterMachine {
  std::uint32_t nodes = 1, in_node = 4;
  double between_nodes = 5;  ///< GB/s
  double within = 20;        ///< GB/s
  std::string memory = "1 GB";
  std::string host = "100 GB";
  double bus = 10;         ///< GB/s between a device and the host
  double adam = 2;         ///< GB/s of the host
  std::uint32_t slow = 0;  ///< of the devices of a node: at a third of the speed
  bool slow_first = false;
};

inline std::string cluster_platform(const ClusterMachine& of) {
  const auto devices = [&](const std::string& name, std::uint32_t count, int peak, int bandwidth) {
    return "  - {name: " + name + ", count: " + std::to_string(count) + ", memory: " + of.memory +
           ", peak: {bf16: " + std::to_string(peak) + " TFLOPS}, memory_bandwidth: " + std::to_string(bandwidth) +
           " GBps, launch_overhead: 1 us}\n";
  };
  const auto links = [&](const std::string& device) {
    return "  - {name: fast" + device + ", between: [" + device + ", inside], bandwidth: " + std::to_string(of.within) +
           " GBps, latency: 1 us}\n  - {name: bus" + device + ", between: [" + device +
           ", host], bandwidth: " + std::to_string(of.bus) + " GBps, latency: 2 us}\n";
  };
  const std::string fast = devices("gpu", of.in_node - of.slow, 10, 100),
                    slow = of.slow > 0 ? devices("slow", of.slow, 3, 33) : "";
  return "format: plimsoll.platform.v1\nname: machine\nsource: made up\nnodes: " + std::to_string(of.nodes) +
         "\ndevices:\n" + (of.slow_first ? slow + fast : fast + slow) + "memories:\n  - {name: host, size: " + of.host +
         ", bandwidth: 50 GBps, adam: " + std::to_string(of.adam) +
         " GBps}\n"
         "switches:\n  - {name: inside}\n  - {name: fabric, scope: cluster}\n"
         "links:\n" +
         links("gpu") + (of.slow > 0 ? links("slow") : "") +
         "  - {name: between, between: [inside, fabric], bandwidth: " + std::to_string(of.between_nodes) +
         " GBps, latency: 5 us}\n";
}

/// A question that asks `cluster` about a model on such a machine, and what its search asks.
struct ClusterAsked {
  ClusterAsked(const std::string& model, const ClusterMachine& machine, std::uint32_t micro_batches,
               const std::string& options, Optimizer optimizer = Optimizer::adam, std::optional<Bytes> memory = {})
      : question{.trace = model,
                 .platform = "machine.yaml",
                 .strategy = parse_pipeline("cluster(" + options + ")", "test"),
                 .micro_batches = micro_batches,
                 .optimizer = optimizer,
                 .engine = Engine::event},
        trace(load_model(model)),
        platform(parse_platform(cluster_platform(machine), "machine.yaml")) {
    if (memory) question.memory = *memory;
  }

  const ClusterOptions& options() const { return question.strategy.passes.front().options.as<ClusterOptions>(); }

  Question question;
  Trace trace;
  Platform platform;
};

inline std::string cluster_mixture(std::uint32_t layers, std::uint32_t width = 64, std::uint32_t sequence = 32) {
  return "llama:layers=" + std::to_string(layers) + ",width=" + std::to_string(width) +
         ",heads=8,kv_heads=4,inner=64,experts=4,sequence=" + std::to_string(sequence) + ",vocabulary=96";
}

inline std::string cluster_model(std::uint32_t layers, std::uint32_t width = 64, std::uint32_t sequence = 32) {
  return "transformer:layers=" + std::to_string(layers) + ",width=" + std::to_string(width) +
         ",heads=8,sequence=" + std::to_string(sequence) + ",vocabulary=96,view=graph";
}

/// The least memory of a device that a point of the space needs.
inline Bytes least_cluster_memory(const std::string& model, const ClusterMachine& machine, std::uint32_t micro_batches,
                                  const std::string& options) {
  const ClusterAsked asked(model, machine, micro_batches, options, Optimizer::adam, Bytes{1});
  ClusterProblems problems(asked.question, asked.trace, asked.platform);
  const ClusterAnswer found = cluster_search(problems.question(), asked.options());
  return found.is_least_proven ? *found.least : throw std::logic_error("the least memory is not proven");
}

inline void check_cluster_bounds(const ClusterRow& row, const ClusterOutcome& outcome) {
  CAPTURE(row.as().text, row.point.samples, outcome.reason);
  if (outcome.makespan) {
    CHECK(row.bound.value <= outcome.makespan->value * (1 + sum_tolerance));
    CHECK(row.memory.total() <= outcome.peak);
  } else if (outcome.smallest) {
    CHECK(row.memory.total() <= *outcome.smallest);
  }
}

/// The same of the whole answer to the point's question, which SimGrid simulates; the outcome is the event engine's.
inline void check_cluster_bounds_in_simgrid(const ClusterProblems& problems, const ClusterRow& row,
                                            const ClusterOutcome& outcome) {
  CAPTURE(row.as().text, row.point.samples);
  Question question = problems.of(row.point, row.as());
  question.engine = Engine::simgrid;
  const BudgetedProblem made = budgeted_problem_of(question, load_model(question.trace), problems.platform());
  const Answer found = answer(question, made.problem, std::span(&made.budget, 1)).front();
  REQUIRE(found.feasible() == outcome.makespan.has_value());
  if (!found.feasible()) return;
  CHECK(row.bound.value <= found.metrics->makespan.value * (1 + sum_tolerance));
  CHECK(row.memory.total() <= found.metrics->peak);
}

}  // namespace plimsoll
