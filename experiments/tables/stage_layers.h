#pragma once
// Models as tables of layers, for `plimsoll stages`.

#include <string>
#include <string_view>
#include <vector>

#include "sim/core/chain.h"
#include "sim/core/schedule.h"
#include "traces/layer_table.h"

namespace plimsoll {

/// A table from a file, for which no optimizer may be asked, or the chain that `--trace` would take by this reference.
LayerTable load_layers(const std::string& reference, Optimizer, States);

/// A stage is a layer with two ways to run it: `plain`, and `recompute`, which keeps the stage's input only. Fixed are
/// parameters, their gradients and the optimizer's states.
LayerTable layers_of(const Chain&, Optimizer, States);

/// The first option of each layer, which is for one device; throws InputError where a layer has none, or is not one of
/// both passes. `planner` is for the message.
std::vector<LayerOption> plain_options(const LayerTable&, std::string_view planner);

}  // namespace plimsoll
