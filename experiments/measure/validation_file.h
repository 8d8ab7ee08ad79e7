#pragma once
// What a validation runs: networks, strategies, a platform whose link the copies keep to.

#include <filesystem>
#include <string>
#include <vector>

#include "sim/core/schedule.h"
#include "strategies/compose/spec.h"

namespace plimsoll {

struct Validation {
  std::string name, platform;
  std::uint32_t rounds = 9;
  double between = 0.5;  ///< the budget: this far from the strategy's least to store_all's peak
  Optimizer optimizer = Optimizer::none;
  std::vector<std::string> networks;
  std::vector<Pipeline> chain_strategies, graph_strategies;
};

/// Throws InputError with every mistake in the file; the platform's path is relative to it.
Validation read_validation(const std::filesystem::path&);

}  // namespace plimsoll
