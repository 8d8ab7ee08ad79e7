#pragma once
// Activations whose backward gets, instead of a saved value, the step of a derivative in which it lies.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "strategies/compression/packing.h"

namespace plimsoll {

struct SteppedRule {
  std::string_view strategy;
  std::uint32_t bits = 3;    ///< of an activation's value: its step of 2^bits of the derivative
  bool takes_relus = false;  ///< from a bit for each value, exactly
  double projected = 0;      ///< above 0: of the rows that a linear layer reads, the share of random sums of them,
  Projection sums = Projection::rademacher;  ///< of this kind
};

/// One plan whatever the budget. Throws InputError where no value is taken by the rule.
std::vector<TapeOutcome> stepped_tapes(const PartTask&, const SteppedRule&,
                                       std::span<const std::optional<Bytes>> budgets, const Tape* before);

}  // namespace plimsoll
