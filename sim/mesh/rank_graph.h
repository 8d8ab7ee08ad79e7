#pragma once
// The graph of one rank of a mesh, whose ranks share out the loops of a model's ops.

#include <string>
#include <variant>

#include "sim/core/graph.h"
#include "sim/mesh/layout.h"

namespace plimsoll {

/// Every op as the plan cuts it, with its share of shapes, flops and bytes, and between ops what it takes to lay values
/// out anew (core/collective_op.h), once a value and layout. Such an op belongs to the stage of what reads it, and to
/// its phase. Durations of collectives are left open.
///  - Parameters and the network's input lie as their first reader needs them; updates, states and gradients lie as
///    their parameters. Gradients that are partial sums are summed before the updates, beside what else runs.
///  - Equal on all ranks: every rank's graph is this one, with its own shares.
/// Or in one sentence why there is none: a dimension that its ranks do not divide, an op without a loop that is to be
/// cut, values that cannot be laid out so.
std::variant<Graph, std::string> rank_graph(const Graph&, const SplitPlan&);

/// The cuts of a plan that says how some ops are cut: ops that it leaves uncut along an axis and that belong to no
/// operator are cut as the first value they read is. Loops where an op has one; nothing changes for others.
void cut_followers(const Graph&, SplitPlan&);

}  // namespace plimsoll
