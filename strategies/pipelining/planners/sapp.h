#pragma once
// SAPP's pipeline balancing: how many equal layers each part of a pipeline gets, and how many of them recompute what,
// as an integer program whose longest stage is as short as can be. Source: "pipeline_balance" of the MindSpore toolkits
// (Huawei), 2025: the program as its authors publish it, levels above the first left out.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "strategies/solve/milp.h"

namespace plimsoll {

struct SappProblem {
  struct Way {  ///< to run a layer, with more or less recomputation
    double backward_seconds = 0, kept_bytes = 0;
  };
  struct Body {  ///< equal layers in a row
    std::uint32_t count = 1;
    double forward_seconds = 0, fixed_bytes = 0;
    std::vector<Way> ways;
  };
  struct End {  ///< what only the first, or the last, device has
    double forward_seconds = 0, backward_seconds = 0, fixed_bytes = 0;
  };
  std::vector<Body> bodies;  ///< in their order
  End head, tail;
  std::uint32_t devices = 1, chunks = 1, micro_batches = 1;
  double memory_bytes = 0;  ///< of a device
  MilpLimits limits;
};

struct SappPlan {
  double seconds = 0, bound = 0;  ///< of the longest stage; no plan is below the bound
  bool proved = false;
  std::string note;  ///< which limit ended the search
  /// Layers by body, way, chunk and device.
  std::vector<std::vector<std::vector<std::vector<std::uint32_t>>>> layers;
  std::vector<double> bytes;  ///< by device
};

struct SappOutcome {
  std::optional<SappPlan> plan;
  std::string reason;  ///< why there is none
};

SappOutcome plan_sapp(const SappProblem&);

/// Micro-batches of a chunk's layers that a device keeps.
std::uint32_t sapp_in_flight(const SappProblem&, std::uint32_t chunk, std::uint32_t device);

// What a distribution of layers takes of each device, as SAPP counts it.

/// What only the first, or the last, device has.
double sapp_end_seconds(const SappProblem&, std::uint32_t device);
double sapp_end_bytes(const SappProblem&, std::uint32_t device);

/// Whether as many micro-batches as devices pass several chunks: then the last chunk's time and the others' are added.
bool sapp_is_short(const SappProblem&);

/// Of the last chunk's forwards, what counts beside its backwards where the pipeline is short.
double sapp_share_of_forward(const SappProblem&, std::uint32_t device);

/// When an iteration of the plan ends, transfers left out: one part a device in 1F1B's order, several interleaved.
double sapp_end(const SappProblem&, const SappPlan&);

/// The plan with its bytes and the seconds that are to be least, from its layers.
SappPlan sapp_counted(const SappProblem&, SappPlan);

}  // namespace plimsoll
