#include "sim/model/schedule_head.h"

namespace plimsoll {

void state_problem(Schedule& schedule, const Problem& problem) {
  schedule.trace = problem.graph.name;
  schedule.platform = problem.platform.name;
  schedule.micro_batches = problem.micro_batches;
  schedule.optimizer = problem.optimizer;
  schedule.parameter_groups = problem.parameter_groups;
  schedule.update_kernels = problem.update_kernels;
  schedule.keeps_averages = problem.keeps_averages;
  schedule.clips_gradients = problem.clips_gradients;
  schedule.states = problem.states.value_or(States::by_dtype);
  schedule.gradients = problem.gradients;
}

}  // namespace plimsoll
