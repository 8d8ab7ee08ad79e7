#pragma once
// The list of strategies (list.def): each by the name that others call it by, all in their order, and by text.

#include <span>
#include <string_view>

#include "strategies/api/strategy.h"

namespace plimsoll {

#define STRATEGY(name) extern const StrategyInfo name##_strategy;
#include "strategies/list.def"
#undef STRATEGY

std::span<const StrategyInfo* const> strategies();

/// Null: there is none of this name.
const StrategyInfo* find_strategy(std::string_view name);

}  // namespace plimsoll
