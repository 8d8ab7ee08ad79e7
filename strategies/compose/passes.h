#pragma once
// Strategies one after the other on a part of the graph: each reads the tape of the one before. For strategies that ask
// others, too.

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "strategies/api/strategy.h"

namespace plimsoll {

/// A strategy with its options.
struct Pass {
  const StrategyInfo* strategy;
  Options options;
};

Pass pass_of(const StrategyInfo&, std::map<std::string, std::string, std::less<>> given = {});

/// What memory strategies make of a part, one outcome a budget.
std::vector<TapeOutcome> tapes_of_passes(const PartTask&, std::span<const Pass>,
                                         std::span<const std::optional<Bytes>> budgets);

TapeOutcome tape_of_passes(const PartTask&, std::span<const Pass>, std::optional<Bytes> budget);

/// Throws InputError where a pass cannot treat the problem at all.
void judge(const Problem&, std::span<const Pass>);

/// The same as tapes_of_passes, judged first.
std::vector<TapeOutcome> judged_tapes_of_passes(const PartTask&, std::span<const Pass>,
                                                std::span<const std::optional<Bytes>> budgets);

}  // namespace plimsoll
