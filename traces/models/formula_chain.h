#pragma once
// The chain of a graph by formula: a stage for each of its stages.

#include <string_view>

#include "sim/core/chain.h"
#include "sim/core/graph.h"

namespace plimsoll {

/// Work, traffic, times and parameters of a stage are those of its ops together; what it saves is what its backward
/// reads (sim/model/stage_chain.h). `model`: what messages call it. Throws where a value goes
/// back to an earlier stage.
Chain formula_chain(const Graph&, std::string_view model);

}  // namespace plimsoll
