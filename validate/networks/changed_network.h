#pragma once
// Networks that are changed as a transform has changed their graph: other updates, fewer channels.

#include "sim/core/graph.h"

namespace plimsoll {

/// Where an update of `from` says in its attribute `optimizer` that it is none of those that networks are built with,
/// the graph's update of the same name becomes the same, and reads the states of the same names.
void take_updates(Graph&, const Graph& from);

/// Tensors take the shapes and bytes of those of the same names in `from`, where these state them.
void take_shapes(Graph&, const Graph& from);

}  // namespace plimsoll
