#pragma once
// Longest paths of a graph of ops.

#include <vector>

#include "strategies/placement/op_dag.h"

namespace plimsoll {

struct Levels {
  std::vector<Nanoseconds> top;     ///< by node: the longest path to it, without it
  std::vector<Nanoseconds> bottom;  ///< by node: the longest path from it, with it
};

/// With these times by node, and these of transfers by edge in the order of OpDag::out.
Levels levels(const OpDag&, std::span<const Nanoseconds> time, std::span<const Nanoseconds> transfer);

/// With mean times and mean transfers on every edge that sends.
Levels mean_levels(const OpDag&, const Machine&);

std::vector<Nanoseconds> mean_times(const OpDag&, const Machine&);
/// By edge in the order of OpDag::out; 0 for those that send nothing.
std::vector<Nanoseconds> mean_transfers(const OpDag&, const Machine&);

}  // namespace plimsoll
