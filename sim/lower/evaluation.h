#pragma once
// Evaluations between iterations, in front of a schedule: in the steady state that is where they stand behind one, too.

#include <string>
#include <variant>
#include <vector>

#include "sim/core/schedule.h"
#include "sim/model/problem.h"

namespace plimsoll {

/// The schedule with one step more on each device that runs the forward, before all others, all of which wait for all
/// of these. It reads the parameters, which are at home then as states and existing gradients are; its workspace is
/// the forward's live set, its time the share of an iteration. Of a problem with an evaluation. Or in one sentence why
/// there is none: a device runs only a part of the forward, parameters are elsewhere between iterations, or updates
/// come within one.
std::variant<Schedule, std::string> with_evaluation(const Problem&, Schedule);

/// What evaluations of such a schedule take.
struct EvaluationNeeds {
  std::vector<Bytes> bytes;  ///< by memory, with all that is there between iterations
  Seconds time;              ///< of an iteration
};
EvaluationNeeds needs_of_evaluation(const Schedule&, const Platform&);

}  // namespace plimsoll
