#pragma once
// Ops of one iteration that belong together: the forward of an operator and its backward ops, which cut dimensions of
// the same names.

#include <vector>

#include "sim/core/graph.h"
#include "sim/core/ids.h"

namespace plimsoll {

struct Operator {
  OpId forward;
  std::vector<OpId> backward;  ///< in the order in which they run; empty without gradients
};

/// In the order of their forwards. A backward op says whose it is by the attribute `of` (the name of its forward), or
/// its kind says of which kinds' forwards (op_kind.h), and the values that it has in common with one of these.
/// Other ops, such as sums of gradients, are in no operator; their cuts follow from what they read.
std::vector<Operator> operators_of(const Graph&);

}  // namespace plimsoll
