#pragma once
// Pipelines that are never flushed: 1F1B with updates within the iteration, for which parts keep older versions of
// their parameters.

#include "strategies/pipelining/pipeline.h"

namespace plimsoll {

/// 1F1B on `ranks` devices with these updates. Throws InputError where gradients exist from the start.
std::vector<PartitionOutcome> asynchronous_1f1b(const Problem&, const LineOptions&, std::string_view strategy,
                                                std::uint32_t ranks, Updates,
                                                std::span<const std::optional<Bytes>> budgets);

}  // namespace plimsoll
