#pragma once
// One op of every kind with small tensors and random numbers: how kernels are held against each other.

#include <string>
#include <vector>

#include "sim/core/graph.h"
#include "validate/networks/kernel_arguments.h"

namespace plimsoll {

struct OpCase {
  Graph graph;
  Op op;
};

/// Every kind of validate/networks.md, with odd sizes and even ones; seeds differ from case to case.
std::vector<OpCase> op_cases();

/// The first case of a kind.
OpCase op_case(const std::string& kind);

/// The tensors of an op: numbers, or tokens in the same four bytes.
struct OpValues {
  std::vector<std::vector<float>> inputs, outputs;
  std::vector<float> statistics;  ///< running ones, of a batch norm
};

/// Random numbers in [-1, 1); for updates in [0, 1), tokens below the vocabulary; outputs poisoned.
OpValues random_values(const OpCase&, std::uint64_t seed);

/// What the CPU backend makes of it.
OpValues on_cpu(const OpCase&, OpValues);

/// The largest difference relative to the largest number of `right`; infinite where one is no number.
double difference(const std::vector<float>& left, const std::vector<float>& right);

}  // namespace plimsoll
