#pragma once
// Chains of stages whose parameters and devices are such that updates are counted by hand.

#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "tests/conformance/judged_pipelines.h"
#include "tests/generate/problems.h"

namespace plimsoll {

/// `stages` stages with 8 bytes of parameters each, on devices that were measured and move 16 bytes a second.
inline Problem on_measured(std::size_t stages, std::uint32_t devices, ProblemOptions options, const char* dtype = "") {
  Chain chain = even_chain(stages);
  chain.source.device = "measured";
  chain.source.dtype = dtype;
  for (std::uint32_t s = 0; s < stages; ++s) {
    chain.stages[s].parameters = {s};
    chain.parameters.push_back({"w" + std::to_string(s), Bytes{8}});
  }
  Platform platform =
      gpus({.count = devices, .to_host = {16}, .to_peers = {1000}, .adam = BytesPerSecond{4}, .to_disk = {{8}}});
  for (Device& device : platform.devices) {
    device.takes_trace_times = false;
    device.model = "measured";
    device.memory_bandwidth = BytesPerSecond{16};
    device.launch_overhead = Seconds{0.01};
  }
  return problem_of(chain, platform, options);
}

/// Of the composition, and judged.
inline Plan counted_plan(const Problem& problem, std::string_view spec) {
  PlanOutcome outcome = plan(problem, parse_spec(spec, "test"), std::nullopt);
  INFO(spec);
  REQUIRE(std::holds_alternative<Plan>(outcome));
  Plan made = std::get<Plan>(std::move(outcome));
  judge_plan(problem, made, std::nullopt);
  return made;
}

}  // namespace plimsoll
