#pragma once
// What a step is called where people read it.

#include <string>

#include "sim/core/collective_op.h"
#include "sim/core/graph.h"
#include "sim/core/schedule.h"

namespace plimsoll {

/// The name of its op; of a copy, and of what only frees, that of the tensor; else `wait`.
std::string step_name(const Graph&, const Schedule&, const Step&);

/// Whether it exchanges values with other ranks: by itself, or as one of the steps that together do.
inline bool is_collective(const Graph& graph, const Step& step) {
  return step.kind == StepKind::collective || (step.op != no_op && collective_of(graph[step.op]));
}

}  // namespace plimsoll
