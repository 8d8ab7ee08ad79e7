#pragma once
// The fastest of all schedules of a tiny graph on one device that copies nothing, by trying every order, repetition and
// free within the budget. It reads the graph alone.

#include <optional>

#include "sim/model/problem.h"

namespace plimsoll {

/// For one micro-batch; nothing where no schedule fits.
std::optional<double> fastest_by_trying(const Problem&, std::int64_t budget);

/// Up to `ops` ops, forwards and then backwards, of whole seconds: several readers and outputs, outputs that are only
/// saved, storages of two outputs, ops in place, network inputs, parameters and their gradients, ops that run once,
/// workspaces, other implementations.
Graph tiny_graph(std::uint64_t seed, std::uint32_t ops);

}  // namespace plimsoll
