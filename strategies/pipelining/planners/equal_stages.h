#pragma once
// Stages of equal numbers of layers, all replicated as often, with tensors shared by as many devices, and all layers
// run in one way: the plans among which PipeDream-2BW chooses, in Piper's model of time and memory. Sources: Narayanan
// et al., "Memory-efficient pipeline-parallel DNN training", ICML 2021, section 3.3; compared with by Tarnawski,
// Narayanan, Phanishayee, "Piper: Multidimensional Planner for DNN Parallelization", NeurIPS 2021.

#include "strategies/pipelining/planners/piper.h"

namespace plimsoll {

struct EqualStagesProblem {
  PiperProblem model;  ///< `fits` and `all_devices` are not asked
  /// Of each layer's options, which way it is. Ways are numbered from 0, and a way has one option for a number of
  /// devices.
  std::vector<std::vector<std::uint32_t>> ways;
  /// Which layers are shared out; those before them go with the first ones, others with the last ones.
  std::vector<bool> counted;
};

/// A layer that is not counted and lies on a path between two that are; then there are no such stages.
std::optional<std::uint32_t> between_counted(const EqualStagesProblem&);

/// The shortest longest stage of all numbers of stages, replicas and devices, and of all ways; where they do not divide
/// the layers, the last stages have one more. Layers that are not counted may have stages of their own.
PiperOutcome plan_equal_stages(const EqualStagesProblem&);

}  // namespace plimsoll
