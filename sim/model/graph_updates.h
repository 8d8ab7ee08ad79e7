#pragma once
// Updates for graphs that have none: an optimizer's states and one update op for every parameter that has a gradient.

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "sim/core/graph.h"
#include "sim/core/optimizer.h"
#include "sim/core/schedule.h"

namespace plimsoll {

/// Whether it is one of an optimizer's updates, and no exchange of ranks before or after them.
bool updates_parameters(const Op&);

/// The first op other than an update that reads a parameter gradient which it adds nothing to, as recorded exchanges of
/// replicas do; none in most graphs.
std::optional<OpId> early_reader_of_gradients(const Graph&);

/// One update of what both change, which takes as long as they take one after the other.
void join_update(Op& update, const Op& other);

/// The parameter that each parameter gradient belongs to. Both are the first tensors of their storages.
struct TrainedParameter {
  TensorId parameter;
  std::vector<TensorId> gradients;
};

/// The pairs of gradient and parameter, or in one sentence what is in doubt. A gradient's parameter is found by:
///  1. what the gradient says (`gradient_of`);
///  2. its name, `gradient of W` or `W.grad`;
///  3. if as many gradients as parameters of one size are left, first within a stage, then in the whole graph: their
///     order, since backward makes gradients in the reverse of the order in which forward reads parameters.
std::variant<std::vector<TrainedParameter>, std::string> trained_parameters(const Graph&);

/// The graph with updates, and the states that were taken; or in one sentence why there are none.
struct UpdatedGraph {
  Graph graph;
  States states = States::by_dtype;
};
std::variant<UpdatedGraph, std::string> graph_with_updates(Graph, const Optimizers&, States);

}  // namespace plimsoll
