#pragma once
// Replicas of what a search cuts: each trains its own micro-batches on its share of the devices.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <variant>

#include "sim/core/problem.h"
#include "strategies/common/option_rules.h"
#include "strategies/hybrid/data_axis.h"
#include "strategies/strategy.h"

namespace plimsoll {

inline bool is_auto_or_count(std::string_view text) {
  return text == "auto" || integer_between<1, 65'536>(text);
}

inline constexpr std::string_view replicas_values = "auto or a whole number from 1 to 65536";
inline constexpr std::string_view replicas_help =
    "among which the devices are shared out, each with its own micro-batches; auto: where these are all devices, "
    "whichever number is the fastest, else 1";

/// The problem of a rank of so many devices' splits.
using SplitOnDevices = std::function<std::variant<Problem, std::string>(const Problem&, std::uint32_t devices)>;

/// The problem of one rank where `replicas` copies, which sum their gradients as data_parallel does, each train their
/// micro-batches on an equal share of the devices, split as the search says. auto: of 1, 2, 4, ... copies those are
/// taken that share out the micro-batches, and of these the ones that are simulated to be the fastest in plain
/// training, among those that keep the limit of memory, or fit the device, if any do. Or in one sentence why there is
/// none.
std::variant<Problem, std::string> in_replicas(const Problem&, const Options&, const SplitOnDevices&);

}  // namespace plimsoll
