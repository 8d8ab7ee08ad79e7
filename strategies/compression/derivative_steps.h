#pragma once
// Activations whose backward gets, instead of a saved value, the step of a derivative in which it lies.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "strategies/compression/packing.h"

namespace plimsoll {

/// One plan whatever the budget: for each activation a step of 2^bits of its derivative; ReLUs, exactly, from a bit for
/// each value, if they are taken. Throws InputError where there is none of either.
std::vector<TapeOutcome> stepped_tapes(const PartTask&, std::string_view strategy, std::uint32_t bits, bool takes_relus,
                                       std::span<const std::optional<Bytes>> budgets, const Tape* before);

}  // namespace plimsoll
