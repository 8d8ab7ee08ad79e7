#pragma once
// Which kernels the stages of a chain are made of, by the graph of the same model.

#include <cstdint>
#include <functional>

#include "sim/core/chain.h"
#include "sim/core/graph.h"

namespace plimsoll {

/// Of each stage's forward and backward the graph's ops of the stage that `stage_of` names, and how many kernels a host
/// issues for them. Views are none.
void add_kernels(Chain&, const Graph&, const std::function<std::uint32_t(std::uint32_t)>& stage_of);

}  // namespace plimsoll
