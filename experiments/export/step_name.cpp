#include "experiments/export/step_name.h"

#include "sim/core/names.h"

namespace plimsoll {

std::string step_name(const Graph& graph, const Schedule& schedule, const Step& step) {
  if (step.op != no_op) return graph[step.op].name;
  if (step.kind == StepKind::evaluation) return std::string(written(step.kind));
  for (const Slice slice : {step.allocates, step.reads, step.writes}) {
    if (slice.count > 0) return graph[schedule[schedule.buffers_in(slice)[0]].tensor].name;
  }
  return "wait";
}

}  // namespace plimsoll
