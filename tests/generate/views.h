#pragma once
// Graphs with several names for one thing, made from graphs without: the truth to hold them against is what they were
// made from.

#include <cstdint>

#include "sim/core/graph.h"

namespace plimsoll {

/// The same training with views (and views of views) of inputs, parameters, activations, gradients and parameter
/// gradients in between, parameter gradients that are views of what their op makes, parameters and inputs with a second
/// name, and inputs listed twice. Views take no time.
Graph with_views(const Graph&, std::uint64_t seed);

}  // namespace plimsoll
