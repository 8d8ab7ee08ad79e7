#pragma once
// What of a schedule of an operator graph PyTorch's selective checkpointing can do: which ops of each stage are saved,
// the others run again once, all together, when the backward reaches the stage (plimsoll.policy.v1,
// validate/plan_format.md).

#include <string>

#include "experiments/study/run.h"
#include "sim/io/json/json.h"

namespace plimsoll {

/// The policies of a feasible answer for a graph on one device, with what is lost: time and peak of what remains,
/// planned, judged and simulated anew. Throws InputError where the trace does not say which modules its stages are.
Json pytorch_policy(const Question&, const Problem&, const Answer&, const std::string& made_by);

}  // namespace plimsoll
