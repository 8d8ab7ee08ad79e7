#pragma once
// A schedule as a plan that PyTorch can run: stages by their modules, values by name, actions in order
// (plimsoll.plan.v1, validate/plan_format.md).

#include <string>

#include "experiments/study/run.h"
#include "sim/io/json/json.h"

namespace plimsoll {

/// Throws InputError where no plan of the question's could be written, whatever comes of planning.
void refuse_early_for_pytorch(const Question&, const Problem&);

/// The plan of a feasible answer; of a graph its policies (validate/plan_format.md). Throws InputError with the reason
/// where such a plan cannot say what the schedule does, or the trace does not say which modules its stages are.
Json pytorch_plan(const Question&, const Problem&, const Answer&, const std::string& made_by);

}  // namespace plimsoll
