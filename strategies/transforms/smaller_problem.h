#pragma once
// Problems with less in them, for transforms: fewer tensors, frozen parameters, or no first stages.

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "sim/core/graph.h"
#include "sim/model/problem.h"

namespace plimsoll {

// Graphs with fewer tensors, for transforms: what is left is numbered anew.

/// By tensor: whether an op names it.
std::vector<bool> named_tensors(const Graph&);

/// Takes the other tensors out; no op names one of them. `keeps` is by tensor.
void keep_tensors(Graph&, const std::vector<bool>& keeps);

/// Takes the other ops out, which are in no group of `colocate` any more then; by op: its new place, or no_op.
std::vector<OpId> keep_ops(Graph&, const std::vector<bool>& keeps);

// A problem in which some parameters are frozen: its graph, and for a chain the times and sizes that its stages have
// then.

/// `trained` is by tensor; only that of parameters counts. In one sentence, where it is in doubt whose a gradient is.
std::variant<Problem, std::string> with_frozen(const Problem&, const std::vector<bool>& trained);

// A problem without its first stages: what they make is read from a store instead.

/// Numbers of the stages that have forwards, ascending.
std::vector<std::uint32_t> forward_stages(const Graph&);

struct WithoutPrefix {
  Problem problem;
  Bytes stored;  ///< of one micro-batch
};

/// The problem without the forwards of the stages before `first`, none of which has a backward. What
/// they hand on becomes inputs; parameters that only they read, and an input, are gone. In one sentence, where a later
/// op overwrites what would be stored.
std::variant<WithoutPrefix, std::string> without_prefix(Problem, std::uint32_t first);

}  // namespace plimsoll
