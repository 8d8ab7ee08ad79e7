#include "sim/measure/one_call.h"

#include <utility>

namespace plimsoll {

bool is_one_call(const Problem& problem, const Schedule& schedule) {
  bool differs = false;
  bool first = true;
  std::uint32_t of_first = 0;
  for (const Step& step : schedule.steps) {
    if (step.kind == StepKind::update || step.kind == StepKind::evaluation) continue;
    if (step.kind == StepKind::recompute || step.work.is_transfer() || step.op == no_op) return false;
    const Op& op = problem.graph[step.op];
    const Device& device = problem.platform[schedule[step.stream].device];
    const Seconds alone = duration_on(problem, step.op, schedule[step.stream].device, Saving::keep);
    if (within(Backprop::in_one_call, op, problem.graph.source, device, alone) < alone) {
      if (step.work.seconds >= alone) return false;
      differs = true;
    }
    if (op.phase == Phase::forward) continue;
    if (std::exchange(first, false)) of_first = step.micro_batch;
    const bool accumulates = step.micro_batch != of_first || problem.gradients == Gradients::existing;
    const Bytes one_call = workspace(op, Saving::keep, accumulates, 0, Backprop::in_one_call);
    if (step.workspace != one_call) return false;
    differs |= one_call != workspace(op, Saving::keep, accumulates, 0, Backprop::by_stage);
  }
  return differs;
}

}  // namespace plimsoll
