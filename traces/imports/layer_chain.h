#pragma once
// Layers as another planner's file lists them, as the stages of a chain.

#include <string_view>

#include "sim/core/chain.h"
#include "traces/layer_table.h"

namespace plimsoll {

/// How a file counts the bytes of a layer.
struct LayerBytes {
  std::string_view recomputing = {};  ///< the way to run a layer that keeps what it reads and nothing else, if any does
  bool trains = true;  ///< fixed are parameters, their gradients and what is left; false: it does not say what they are
};

/// A stage a layer, run in the first of its ways on one device, in an order in which each comes behind those that it
/// reads, else in the table's. A layer makes a tensor for each size among its edges. Its backward reads what the layer
/// has read and, unless a way to recompute says that this is all, what it has made. There are layers on one device
/// only, with both passes, no circle, and no stated times of transfers. Throws InputError where a layer has no way on
/// one device, or sums are absurdly large.
Chain chain_of(const LayerTable&, const LayerBytes&);

}  // namespace plimsoll
