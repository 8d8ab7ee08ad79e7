#pragma once
// A portfolio that is asked alone chooses among all ways to use the platform's devices, and to store states.

#include <vector>

#include "experiments/run.h"

namespace plimsoll {

struct ChosenForDevices {
  Question question;  ///< with the strategy that was chosen
  BudgetedProblem problem;
  std::vector<Candidate> candidates;  ///< all that were asked; empty where there was nothing to choose
};

/// Of any question. Where its strategy is `portfolio` and nothing else, and the platform has several devices or states
/// may have 8 bits, the fastest of it on one device, pipelines, replicas and placements is chosen, each with the memory
/// strategies that suit it; where nothing fits, the one that needs the least.
ChosenForDevices chosen_for_devices(Question);

}  // namespace plimsoll
