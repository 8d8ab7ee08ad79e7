#pragma once
// How ops split by their kind: the loop (op_loop.h) of an op whose trace states none, from kind, shapes and attributes.
// Work, kept bytes and collectives of every split follow from the loop (layout.h, rank_graph.h).

#include <string>
#include <variant>
#include <vector>

#include "sim/core/graph.h"

namespace plimsoll {

/// In one sentence why no rule says how the op splits.
struct NoRule {
  std::string why;
};

/// The attributes `loop` and `loop_reduces` as the trace would give them.
struct RuledLoop {
  std::string loop, reduces;
};

/// Where a kind is used with operands of several forms, those that may fit, the likelier first: never empty.
std::variant<std::vector<RuledLoop>, NoRule> loops_by_rule(const Graph&, OpId);

}  // namespace plimsoll
