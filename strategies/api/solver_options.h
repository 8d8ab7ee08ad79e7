#pragma once
// The limits of integer programs: options of every strategy that solves one.

#include "strategies/api/option_rules.h"
#include "strategies/api/strategy.h"

namespace plimsoll {

inline constexpr OptionInfo time_limit_option{
    .name = "time_limit",
    .default_value = "60",
    .values = "a whole number of seconds from 1 to 86400",
    .help =
        "stop the solver for one budget after this time; the answer is then the best plan known, with its proven gap",
    .allowed = integer_between<1, 86'400>,
};

inline constexpr OptionInfo nodes_option{
    .name = "nodes",
    .default_value = "1000000",
    .values = "a whole number from 0 to 1000000000",
    .help = "stop after this many branch-and-bound nodes (repeatable, unlike a time limit)",
    .allowed = integer_between<0, 1'000'000'000>,
};

}  // namespace plimsoll
