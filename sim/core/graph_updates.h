#pragma once
// Updates for graphs that have none: an optimizer's states and one update op for every parameter that has a gradient.

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "sim/core/graph.h"
#include "sim/core/schedule.h"

namespace plimsoll {

/// Whose gradient each parameter gradient is. Both are the first tensors of their storages.
struct TrainedParameter {
  TensorId parameter;
  std::vector<TensorId> gradients;
};

/// In this order: what the gradient says (`gradient_of`); its name, `gradient of W` or `W.grad`; then, of those that
/// are left, as many gradients as parameters of one size, first within a stage, then in the whole graph: backward makes
/// gradients in the reverse of the order in which forward reads parameters. In words what is not known otherwise.
std::variant<std::vector<TrainedParameter>, std::string> trained_parameters(const Graph&);

/// The graph with updates, and the states that were taken; or in one sentence why there are none.
struct UpdatedGraph {
  Graph graph;
  States states = States::by_dtype;
};
std::variant<UpdatedGraph, std::string> graph_with_updates(Graph, Optimizer, States);

}  // namespace plimsoll
