#pragma once
// A network that can really run: a graph of primitive ops, one kernel each, that lie in stages in a row.

#include <memory>
#include <vector>

#include "sim/core/graph.h"

namespace plimsoll {

/// The graph's ops read and make tensors in the order that their kind states (README.md, "Kinds of ops"). Each has one
/// output beside parameter gradients, so that every value can be dropped and recomputed on its own.
struct Network {
  Graph graph;                            ///< `stage` of an op counts from 0
  std::vector<std::string> stage_names;   ///< the last is the loss
  std::vector<TensorId> boundaries;       ///< x_0, the input, to the input of the loss: what stage i reads
  std::shared_ptr<const Network> before;  ///< whose last boundary is this one's input, stored; null: none
};

/// The running statistics of batch norms: parameters without a gradient that no op is said to read; they are on the
/// device throughout, and the first forward of every micro-batch moves them.
inline constexpr const char* statistics_attribute = "statistics";

}  // namespace plimsoll
