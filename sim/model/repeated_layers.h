#pragma once
// A chain with as many layers as asked for, from one of the same model with few: a model's inner layers cost the same,
// so that a small graph tells what a large one costs.

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/core/chain.h"

namespace plimsoll {

struct RepeatedLayers {
  Chain chain;
  std::vector<std::uint32_t> stage_of;      ///< by its stage: that of the chain with few layers
  std::vector<std::uint32_t> parameter_of;  ///< by its parameter: likewise
};

/// The first layer, inner ones alike, and the last layer, between what stands before and behind them. Layers are known
/// by the names of their stages and parameters, `layer3.` and what follows. Nothing where there are fewer than five,
/// where inner ones are not alike, or where more than one tensor goes on between stages.
std::optional<RepeatedLayers> with_layers(const Chain& few, std::uint32_t layers);

}  // namespace plimsoll
