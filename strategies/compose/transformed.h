#pragma once
// The problem that a pass pipeline is asked about: as its transforms change it and its ranks share it out.

#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>

#include "strategies/api/pass.h"
#include "strategies/hybrid/built.h"

namespace plimsoll {

/// The problem as the transforms among the passes change it; itself where there are none. Throws InputError where one
/// cannot. All below is asked about that problem, and so are check, bounds and replay of the schedules.
Problem transformed(Problem, std::span<const Pass>);

/// The same by what was decided before, one after the other for the passes that decide (Problem::decisions): nothing is
/// searched for. Or because of which of them it cannot be, and why: the key `[0].cuts[3].op`, say.
std::variant<Problem, CannotBuild> transformed(Problem, std::span<const Pass>, std::span<const Decisions>);

/// How many of the passes decide.
std::size_t deciding(std::span<const Pass>);

/// Whether the backwards of the problem that these passes are asked about must be split (ProblemOptions::backward).
Backward backward_for(std::span<const Pass>);
/// Whether its stages' saved tensors must be apart (ProblemOptions::inner).
Inner inner_for(std::span<const Pass>);

/// Whether graphs become chains for a planner of chains: not where ops are placed, nor where a pipeline cuts.
bool cuts_graphs_itself(std::span<const Pass>);

/// How many micro-batches of the transformed problem these passes make of each.
std::uint32_t slices_of(std::span<const Pass>);

/// Replicas among which hybrid strategies share out the micro-batches of a problem, on so many devices.
std::uint32_t replicas_of(std::span<const Pass>, std::size_t devices);

/// The passes that make tapes; where there are none, rotor if ranks' operators and stages are cut together, else plain
/// training.
std::vector<Pass> memory_passes(std::span<const Pass>);

/// Whether the problem is one for these passes: all that changes it has been applied.
bool is_for(const Problem&, std::span<const Pass>);

}  // namespace plimsoll
