#pragma once
// A part of a graph as the log that an online method would see of it: calls in the graph's order, references given back
// after the last use.

#include <optional>
#include <vector>

#include "sim/core/partition.h"
#include "sim/model/op_log.h"
#include "sim/model/problem.h"

namespace plimsoll {

struct PartLog {
  OpLog log;
  std::vector<std::optional<OpId>> op_of;  ///< by call of the log; none: the network's input comes in
};

/// Parameters, optimizer states and parameter gradients that exist are no part of it. Never evicted are: the network's
/// input, results of ops that must not run twice (parameter gradients, ops that overwrite, ops marked so) and whatever
/// shares or reads an overwritten storage; they stay until nothing that may still be computed again can need them.
PartLog part_log(const Problem&, const Part&);

}  // namespace plimsoll
