#pragma once
// The problem of one rank from what was decided about its splits, by a search or by the file of a schedule.

#include <string>
#include <variant>

#include "sim/core/decisions.h"
#include "sim/mesh/layout.h"
#include "sim/model/problem.h"

namespace plimsoll {

/// Why a problem cannot be built from decisions, and because of what in them: `cuts[3].op`, say; empty: all of them.
struct CannotBuild {
  std::string why, key = {};
};

/// Searches are not asked: the same decisions give the same problem, whoever made them. Where the pass before has cut
/// operators and Problem::uncut is there, these are about that, and ops are cut by both.
std::variant<Problem, CannotBuild> built(const Problem&, const Decisions&);

/// Decisions to cut ops of the graph as the plan does.
Decisions decisions_of(const Graph&, SplitPlan);

/// What cuts operators needs more than a chain's stages.
std::string no_operators(const Chain&);

}  // namespace plimsoll
