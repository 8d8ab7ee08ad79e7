#pragma once
// What of a network's values waits for the backward when the forward ends.

#include "sim/core/schedule.h"
#include "sim/model/problem.h"

namespace plimsoll {

/// What is there when the forward ends, by whether it is packed; values only.
struct ValuesWaiting {
  Bytes packed, plain;
};

inline ValuesWaiting waiting_after_forward(const Problem& problem, const Schedule& schedule) {
  std::vector<bool> live(schedule.buffers.size(), false);
  for (const Step& step : schedule.steps) {
    if (step.op != no_op && problem.graph[step.op].phase != Phase::forward) break;
    for (const BufferId b : schedule.buffers_in(step.allocates)) live[b.index] = true;
    for (const BufferId b : schedule.buffers_in(step.frees)) live[b.index] = false;
  }
  ValuesWaiting waiting;
  for (std::size_t b = 0; b < live.size(); ++b) {
    if (!live[b] || problem.graph[schedule.buffers[b].tensor].kind != TensorKind::activation) continue;
    (schedule.buffers[b].is_packed() ? waiting.packed : waiting.plain) += schedule.buffers[b].bytes;
  }
  return waiting;
}

}  // namespace plimsoll
