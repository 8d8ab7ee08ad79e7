#pragma once
// rotor's dynamic program as it was published and released, with sizes in slots of the budget, to test ours against.

#include <cstdint>
#include <optional>

#include "strategies/models/chain_model.h"

namespace plimsoll {

/// Its least time within `budget`, or nothing. Every size is rounded up to whole slots of (budget - resident) / slots
/// bytes, rounded down, and of these there are `slots`. One condition of the released code is wrong and is right here:
/// the forward that saves at i within stages i..l runs beside the gradient of x_{l+1}, not of x_{i+1}. Gradients,
/// forwards that keep nothing and parameter gradients have sizes of their own. Backwards read both boundary tensors.
std::optional<double> published_rotor(const ChainModel&, std::int64_t budget, std::int64_t slots);

}  // namespace plimsoll
