#pragma once
// Levels of memory at which plans are made for all budgets: evenly between what is needed at least and at most.

#include <cstdint>
#include <string_view>
#include <vector>

#include "strategies/api/strategy.h"

namespace plimsoll {

/// `option` is "auto" or a number; auto is 40, fewer for tapes of more than 600 positions, down to `fewest`.
std::vector<Bytes> memory_levels(Bytes least, Bytes most, std::string_view option, std::size_t positions,
                                 std::size_t fewest = 8);

bool is_auto_or_level_count(std::string_view);

inline constexpr OptionInfo levels_option =
    text_option("levels", "auto", "auto or a whole number from 1 to 1000",
                "number of memory levels at which plans are made, the same for all budgets; "
                "auto: 40, fewer for more than 600 ops, at least 8",
                is_auto_or_level_count);

}  // namespace plimsoll
