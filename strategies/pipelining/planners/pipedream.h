#pragma once
// PipeDream's optimizer: the stages, and how often each is replicated, that make the longest stage of an asynchronous
// pipeline as short as can be, level by level of a machine (GPUs of a server, servers of a network).
// Source: Narayanan et al., "PipeDream: Generalized Pipeline Parallelism for DNN Training", SOSP 2019, section 3.1, and
// the optimizer that its authors published, which divides the exchange of gradients by the machines of the level below
// where a stage is not split, and there only.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "strategies/pipelining/planners/downsets.h"
#include "strategies/pipelining/planners/range_fits.h"

namespace plimsoll {

struct PipedreamProblem {
  Dag dag;
  /// Of each node: forward and backward together, what its replicas exchange, what each mini-batch in flight keeps, and
  /// what it hands on to the nodes after it.
  std::vector<double> seconds, parameter_bytes, activation_bytes, output_bytes;

  struct Level {
    std::uint32_t machines = 1;  ///< of the level below; at the first level devices
    double bytes_per_second = 0;
  };
  std::vector<Level> levels;  ///< from the devices outwards

  std::optional<double> memory_bytes;  ///< of a device, for parameters and activations of what is in flight
  RangeFits fits = {};                 ///< of a chain on one level
  /// As the original: stages begin only at sets of layers that grow from one source, and a memory check that counts as
  /// in flight only what is behind a stage at its level, which is nothing where all its machines replicate one stage.
  bool published = false;

  bool straight = false;              ///< no replicas
  std::optional<double> compression;  ///< transfers between stages count, their bytes divided by this
};

struct PipedreamStage {
  std::vector<std::uint32_t> nodes;
  std::uint32_t replicas = 1;
  std::uint32_t in_flight = 1;  ///< mini-batches that a replica keeps
  double bytes = 0;             ///< parameters and activations of all of these
};

struct PipedreamPlan {
  double seconds = 0;  ///< of a mini-batch, in the steady state
  double one_device = 0, data_parallel = 0;
  std::size_t states = 0;
  std::vector<PipedreamStage> stages;
};

struct PipedreamOutcome {
  std::optional<PipedreamPlan> plan;
  std::string reason;  ///< why there is none
};

PipedreamOutcome plan_pipedream(const PipedreamProblem&);

}  // namespace plimsoll
