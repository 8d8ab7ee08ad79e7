#pragma once
// Pipelines of equal parts, for closed forms and published figures.

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "sim/engine/event/event_engine.h"
#include "sim/judge/check.h"
#include "sim/measure/metrics.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "strategies/models/chain_pass.h"
#include "tests/generate/problems.h"

namespace plimsoll {

/// Times of one part's pieces, and of a transfer.
struct Pieces {
  double f = 1, b = 1, w = 1, c = 0;
};

/// What a part saves, and what of it stays until its weight gradients.
struct Saves {
  std::int64_t all = 6, for_weights = 4;
};

/// `parts` equal stages, the last one the loss, with no memory but what a stage saves.
inline Chain equal_stages(std::uint32_t parts, const Pieces& time, const Saves& saves = {}) {
  Chain chain;
  chain.name = "equal";
  for (std::uint32_t s = 0; s < parts; ++s) {
    Stage stage;
    stage.name = "s" + std::to_string(s);
    stage.forward = stage.forward_nograd = Seconds{time.f};
    stage.backward = Seconds{time.b + time.w};
    stage.backward_weight = Seconds{time.w};
    stage.has_backward_weight = true;
    stage.saved = Bytes{saves.all};
    stage.weight_saved = Bytes{saves.for_weights};
    chain.stages.push_back(stage);
  }
  return chain;
}

struct Run {
  Seconds makespan, longest_stage;
  std::vector<Bytes> peaks;  ///< by device
  Schedule schedule;
};

inline Seconds longest_stage_of(const Problem& problem, const Plan& made) {
  return measure(problem, made.schedule, simulate_event(made.schedule, problem.platform)).longest_stage;
}

/// Plans it, has it judged and simulated by both engines.
inline Run run_of(const std::string& spec, std::uint32_t devices, std::uint32_t parts, std::uint32_t m,
                  const Pieces& time, const Saves& saves = {}) {
  const std::vector<Pass> passes = parse_spec(spec, "test");
  const Problem problem =
      problem_of(equal_stages(parts, time, saves), gpus({.count = devices, .peer_latency = Seconds{time.c}}),
                 {.micro_batches = m, .backward = backward_for(passes)});
  const Plan made = std::get<Plan>(plan(problem, passes, std::nullopt));
  REQUIRE(check(made.schedule, problem.graph, problem.platform).empty());
  const Timeline timeline = simulate_event(made.schedule, problem.platform);
  CHECK(timeline.makespan == made.makespan);
  Run run{timeline.makespan, measure(problem, made.schedule, timeline).longest_stage, {}, made.schedule};
  for (std::size_t d = 0; d < devices; ++d) run.peaks.push_back(timeline.peaks[d].bytes);
  CHECK(*std::ranges::max_element(run.peaks) == made.peak);
  return run;
}

}  // namespace plimsoll
