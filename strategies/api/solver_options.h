#pragma once
// The limits of searches and integer programs: options of every strategy that has one.

#include <cstddef>
#include <cstdint>

#include "strategies/api/options.h"

namespace plimsoll {

/// Where a search ends; each strategy has the rows of the limits that it heeds in its table.
struct LimitOptions {
  std::int64_t time_limit = 60;    ///< seconds, which others see at another time
  int nodes = 1'000'000;           ///< of branch and bound
  std::size_t states = 2'000'000;  ///< of a search over schedules
};

inline constexpr auto time_limit_option = option_of<&LimitOptions::time_limit>({
    .name = "time_limit",
    .least = 1,
    .most = 86'400,
    .values = "a whole number of seconds from 1 to 86400",
    .help =
        "stop the solver for one budget after this time; the answer is then the best plan known, with its proven gap",
});

inline constexpr auto nodes_option = option_of<&LimitOptions::nodes>({
    .name = "nodes",
    .least = 0,
    .most = 1'000'000'000,
    .help = "stop after this many branch-and-bound nodes (repeatable, unlike a time limit)",
});

}  // namespace plimsoll
