#pragma once
// Piper: stages of a synchronous 1F1B pipeline, how often each is replicated, over how many devices each layer's
// tensors are split, and which layers recompute, so that the longest stage is as short as can be within the memory.
// Source: Tarnawski, Narayanan, Phanishayee, "Piper: Multidimensional Planner for DNN Parallelization", NeurIPS 2021.
// The same optimum as its dynamic program over (set, devices, replicas), found otherwise: for a time that no stage may
// exceed, the fewest devices by (set, replicas), and bisection over that time.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "strategies/pipelining/planners/downsets.h"
#include "strategies/pipelining/planners/range_fits.h"

namespace plimsoll {

struct PiperProblem {
  struct Option {  ///< a way to run a layer on `devices` devices that share its tensors
    std::uint32_t devices = 1;
    double seconds = 0;  ///< of a micro-batch, both passes
    double parameter_bytes = 0, kept_bytes = 0, fixed_bytes = 0;
    std::vector<std::pair<std::uint32_t, double>> sent;  ///< edge, bytes sent beside the edge's own where it is cut
  };
  std::vector<std::vector<Option>> nodes;
  Dag dag;
  std::vector<double> edge_bytes;  ///< of the edges of `dag`, in their order
  std::uint32_t devices = 1, micro_batches = 1;
  double bytes_per_second = 0;
  std::optional<double> memory_bytes;  ///< of a device
  RangeFits fits = {};                 ///< of a chain
  bool replicas = true;
  bool all_devices = false;  ///< of layers whose tensors are not shared: none is left out
};

struct PiperStage {
  std::vector<std::uint32_t> nodes, options;  ///< which option of each node
  std::uint32_t replicas = 1, devices = 1, in_flight = 1;
  double seconds = 0, bytes = 0;
};

struct PiperPlan {
  double seconds = 0;       ///< of a micro-batch in the longest stage, with its share of the exchange of gradients
  bool in_one_row = false;  ///< only cuts of one order of the layers were tried, since there are too many sets
  std::vector<PiperStage> stages;
};

struct PiperOutcome {
  std::optional<PiperPlan> plan;
  std::string reason;  ///< why there is none
};

PiperOutcome plan_piper(const PiperProblem&);

// Stages of equal numbers of layers, all replicated as often, with tensors shared by as many devices, and all layers
// run in one way: the plans among which PipeDream-2BW chooses, in Piper's model of time and memory. Sources: Narayanan
// et al., "Memory-efficient pipeline-parallel DNN training", ICML 2021, section 3.3; compared with by Tarnawski,
// Narayanan, Phanishayee, "Piper: Multidimensional Planner for DNN Parallelization", NeurIPS 2021.

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
