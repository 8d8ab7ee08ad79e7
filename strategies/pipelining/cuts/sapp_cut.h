#pragma once
// cut=sapp: SAPP's distribution of a chain's stages over parts of which part g is on device g mod p, one or several a
// device.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "sim/model/problem.h"
#include "strategies/pipelining/cuts/cuts.h"
#include "strategies/pipelining/orders/orders.h"

namespace plimsoll {

inline constexpr std::string_view sapp_cut = "sapp";

/// The first stage of the chain is SAPP's head, the last one its tail, equal ones in a row are layers of one kind; all
/// run in plain training. `waiting`, of each part, is what plain training on a device is held against the budget with.
/// Within the budget or, where no such cut is found, as if there were no limit; or why there is none.
std::variant<StageCut, std::string> cut_by_sapp(const Problem&, std::uint32_t ranks, std::span<const Waiting> waiting,
                                                bool weights_apart, const std::optional<Bytes>& budget);

}  // namespace plimsoll
