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

}  // namespace plimsoll
