#pragma once
// The slow and literal answer about graphs: the least time of any schedule within a budget. It reads the graph itself
// and shares no code with the planners: a state is what each storage holds, every single action (run an op, drop a
// storage) is a step of its own, and Dijkstra's algorithm tries them all.

#include <optional>

#include "sim/model/problem.h"

namespace plimsoll {

/// For one micro-batch without updates, on the first device; up to some ten ops. An op begins when the one before it
/// has ended, and the device's host has issued all up to it.
std::optional<double> least_time_of_graph(const Problem&, std::int64_t budget);

/// The least budget for which there is a schedule, by trying one after the other downwards from `enough`.
std::int64_t least_budget_of_graph(const Problem&, std::int64_t enough);

/// One unit op a layer and its gradient: v_1 .. v_n, a loss, g_n .. g_1, where g_i reads g_{i+1} (g_n: the loss) and
/// v_i. All times and sizes are 1. With n = 8 Checkmate's optimum at budget 4 is 26.
Graph unit_net(std::size_t layers);

/// A random graph without parameters whose last op everything leads to. The chance that an op reads the newest value:
/// at 1 the ops have one order only.
Graph random_single_sink(std::uint64_t seed, std::size_t ops, double reads_newest);

}  // namespace plimsoll
