#pragma once
// Models as tables of layers, for `plimsoll stages`.

#include <string>
#include <string_view>
#include <vector>

#include "sim/core/chain.h"
#include "traces/layer_table.h"

namespace plimsoll {

/// A table from a file, or the chain that `--trace` would take by this reference.
LayerTable load_layers(const std::string& reference);

/// A stage is a layer with two ways to run it: `plain`, and `recompute`, which keeps the stage's input only. Fixed are
/// parameters and their gradients; states of an optimizer are not counted.
LayerTable layers_of(const Chain&);

/// The first option of each layer, which is for one device; throws InputError where a layer has none, or is not one of
/// both passes. `planner` is for the message.
std::vector<LayerOption> plain_options(const LayerTable&, std::string_view planner);

}  // namespace plimsoll
