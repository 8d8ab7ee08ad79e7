#pragma once
// Networks small enough to be trained in milliseconds, planned and replayed as the program does it.

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/core/platform.h"
#include "strategies/compose/plan.h"
#include "validate/cpu/cpu_replay.h"
#include "validate/replay.h"

namespace plimsoll {

/// A network on a platform, ready to be planned for and replayed.
struct Training {
  Problem problem;
  CpuNetwork network;
};

Training training_of(const std::string& reference, Platform, const ProblemOptions& = {});

/// One size of scratch for all kernels, those of slices too, more than oneDNN's want on any processor: plans are the
/// same everywhere.
void take_one_scratch(CpuNetwork&, Bytes enough);

/// One GPU, a host and a disk, with links that are fast enough not to slow tests down.
Platform one_gpu();

PlanOutcome planned(const Problem&, const std::string& spec, std::optional<Bytes> budget = {});

/// The model of a network such as `mlp:layers=8,view=graph`, with the workspaces of the CPU's kernels.
std::variant<Chain, Graph> network_model(const std::string& reference);

/// Runs on the CPU.
std::variant<Replayed, ReplayFailure> run_of(const Training&, const Schedule&, const ReplayOptions&);

/// Runs with poisoned memory; a failure fails the test.
Replayed replayed(const Training&, const Schedule&);

/// The names of `run` that `plain` has not, or with other bits.
std::vector<std::string> differing(const Replayed& run, const Replayed& plain);

/// The largest difference of a value's numbers, relative to its largest number.
double relative_difference(const Replayed& run, const Replayed& plain, const std::string& name);

/// In which order contributions are added to each parameter gradient: (op, micro-batch), by the gradient's name.
std::map<std::string, std::vector<std::pair<OpId, std::uint32_t>>> contributions(const Problem&, const Schedule&);

}  // namespace plimsoll
