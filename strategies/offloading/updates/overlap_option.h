#pragma once
// The option that says when updates on the host begin.

#include "strategies/api/strategy.h"

namespace plimsoll {

inline constexpr OptionInfo overlap_option{
    .name = "overlap",
    .default_value = "off",
    .values = "on or off",
    .help =
        "on: an update on the host begins as soon as its gradient has arrived; off: after the whole backward, as in "
        "DeepSpeed",
    .allowed = [](std::string_view text) { return text == "on" || text == "off"; },
};

}  // namespace plimsoll
