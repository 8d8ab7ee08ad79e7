#pragma once
// A dimension that is made larger so that ranks divide it: words that nobody says, numbers that are 0.

#include <cstdint>
#include <string_view>

#include "sim/core/graph.h"

namespace plimsoll {

/// The graph in which the loops' dimension of that name and size has `to` numbers: its tensors with their gradients and
/// optimizer states, and the work of the ops that have it.
Graph padded(Graph, std::string_view name, std::int64_t from, std::int64_t to);

}  // namespace plimsoll
