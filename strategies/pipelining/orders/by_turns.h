#pragma once
// What 1f1b and eager_1f1b share: one forward and one backward by turns, stages on one device or several.

#include <cstdint>

#include "strategies/pipelining/pipeline.h"

namespace plimsoll {

inline constexpr OptionInfo in_flight_option{
    .name = "in_flight",
    .default_value = "auto",
    .values = "auto or a number from 1 on for each stage, such as 4:3:2:1",
    .help = "micro-batches that a device of each stage keeps at most; auto: as the strategy does",
    .allowed = [](std::string_view text) { return text == "auto" || read_numbers(text).has_value(); },
};

/// With `ahead` times the forwards to warm up that 1f1b has, unless the option `in_flight` says otherwise.
std::vector<PartitionOutcome> by_turns(const Problem&, const Options&, std::string_view strategy, std::uint32_t ahead,
                                       std::span<const std::optional<Bytes>> budgets);

}  // namespace plimsoll
