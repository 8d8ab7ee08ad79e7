#pragma once
// A pass of a pipeline: a strategy with its options. Strategies that ask others name them so.

#include <functional>
#include <map>
#include <string>

#include "strategies/api/strategy.h"

namespace plimsoll {

struct Pass {
  const StrategyInfo* strategy;
  Options options;
};

inline Pass pass_of(const StrategyInfo& strategy, std::map<std::string, std::string, std::less<>> given = {}) {
  return {&strategy, Options(strategy.options, given)};
}

}  // namespace plimsoll
