#pragma once
// How far reserved memory was off where whole steps were measured, by the kind of model.

#include <cstdint>
#include <optional>
#include <string_view>

#include "sim/core/graph.h"

namespace plimsoll {

/// Measured beyond predicted, as shares of the predicted: of the step with the least, and with the most.
struct ReserveErrors {
  std::string_view models;  ///< `transformers`
  std::uint32_t steps = 0;
  double least = 0, most = 0;

  friend bool operator==(const ReserveErrors&, const ReserveErrors&) = default;
};

/// Of models whose ops are like this graph's, on one H100 with PyTorch 2.11 (docs/truth.csv).
std::optional<ReserveErrors> reserve_errors(const Graph&);

}  // namespace plimsoll
