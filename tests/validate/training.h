#pragma once
// Networks small enough to be trained in milliseconds, planned and replayed as the program does it.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/core/platform.h"
#include "strategies/plan.h"
#include "validate/replay.h"

namespace plimsoll {

/// A network on a platform, ready to be planned for and replayed.
struct Training {
  Problem problem;
  CpuNetwork network;
};

Training training_of(const std::string& reference, Platform, const ProblemOptions& = {});

/// One GPU, a host and a disk, with links that are fast enough not to slow tests down.
Platform one_gpu();

PlanOutcome planned(const Problem&, const std::string& spec, std::optional<Bytes> budget = {});

/// Runs with poisoned memory; a failure fails the test.
Replayed replayed(const Training&, const Schedule&);

/// The names whose bits differ, or that only one of the two has.
std::vector<std::string> differences(const Replayed& a, const Replayed& b);

}  // namespace plimsoll
