#include "strategies/list.h"

#include <algorithm>
#include <array>

namespace plimsoll {
namespace {

#define STRATEGY(name) &name##_strategy,
constexpr std::array all_strategies{
#include "strategies/list.def"
};
#undef STRATEGY

}  // namespace

std::span<const StrategyInfo* const> strategies() {
  return all_strategies;
}

const StrategyInfo* find_strategy(std::string_view name) {
  const auto* const found = std::ranges::find(all_strategies, name, &StrategyInfo::name);
  return found == all_strategies.end() ? nullptr : *found;
}

}  // namespace plimsoll
