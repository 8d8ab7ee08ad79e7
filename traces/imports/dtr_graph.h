#pragma once
// A DTR log as an op graph, as far as one can say it: views are left out, constants become parameters, what is kept
// from backward becomes parameter gradients. The notes of the graph's source say what was done.

#include "sim/core/graph.h"
#include "sim/model/op_log.h"

namespace plimsoll {

/// Throws InputError where nothing is left to compute.
Graph graph_of_dtr_log(const OpLog&);

}  // namespace plimsoll
