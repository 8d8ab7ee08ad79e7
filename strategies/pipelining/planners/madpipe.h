#pragma once
// MadPipe: the shortest period of a pipeline whose stages keep within memory, under 1F1B*, the periodic order that
// keeps least: stages and the links between them are packed, from the last stage back, into groups of at most one
// period each, and a stage of group g keeps g micro-batches. One device, the special one, may run several stages.
// Source: Beaumont, Eyraud-Dubois, Shilova, "MadPipe: Memory Aware Dynamic Programming Algorithm for Pipelined Model
// Parallelism", ScaDL 2022, and "Pipelined Model Parallelism: Complexity Results and Memory Considerations", Euro-Par
// 2021. Derived anew: times and bytes are not rounded; what a device has done before is kept as a set of states of
// which none is better than another in everything.

#include <cstdint>
#include <optional>
#include <vector>

#include "strategies/pipelining/planners/range_fits.h"

namespace plimsoll {

struct MadpipeProblem {
  struct Layer {
    double seconds = 0;       ///< forward and backward of a micro-batch
    double fixed_bytes = 0;   ///< parameters, gradients, states
    double kept_bytes = 0;    ///< of each micro-batch that its stage keeps
    double output_bytes = 0;  ///< handed to the next layer, and as much back
  };
  std::vector<Layer> layers;
  std::uint32_t devices = 1;
  double bytes_per_second = 0;
  std::optional<double> memory_bytes;  ///< of a device
  RangeFits fits = {};                 ///< instead of bytes under 1F1B*; none of the devices is special then
  RangeBytes bytes = {};               ///< of a stage, instead of the layers' own
  bool special = false;                ///< one of the devices may run several stages that do not follow each other
  bool all_devices = false;            ///< each of them has a stage; else some may be left out
};

struct MadpipePlan {
  struct Stage {
    std::uint32_t first = 0, last = 0;  ///< layers [first, last)
    std::uint32_t in_flight = 1;
    bool special = false;
    double seconds = 0, bytes = 0;
  };
  double seconds = 0;  ///< the period
  std::vector<Stage> stages;
  bool exact = true;  ///< false: there were more states than are kept, and a shorter period may be possible
};

std::optional<MadpipePlan> plan_madpipe(const MadpipeProblem&);

}  // namespace plimsoll
