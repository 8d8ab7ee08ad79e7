#pragma once
// Two-phase rounding of Checkmate's relaxation: first what is kept (S) becomes 0 or 1, then as little as possible runs.
// Source: Jain et al., "Checkmate", MLSys 2020, section 5 (algorithm 2) and the released code.

#include <optional>
#include <vector>

#include "strategies/models/op_model.h"
#include "strategies/models/op_sequence.h"

namespace plimsoll {

/// By stage and value: there when the stage begins.
using Kept = std::vector<std::vector<bool>>;

/// The fewest runs that keep this; nothing where something that runs once would have to run again.
std::optional<OpSequence> least_runs(const OpModel&, Kept);

/// Whether every op finds what it reads and none that runs once is repeated.
bool is_runnable(const OpModel&, const OpSequence&);

}  // namespace plimsoll
