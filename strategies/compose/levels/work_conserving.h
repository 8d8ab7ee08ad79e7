#pragma once
// The option work_conserving=yes of pipelining strategies: devices do not wait for the next turn of their order where
// they could take a later one, and what comes of that is the order.

#include <vector>

#include "strategies/api/pass.h"
#include "strategies/compose/levels/planned_parts.h"

namespace plimsoll {

bool is_work_conserving(const Pass&);

struct SimulatedParts {
  PlannedParts made;
  std::vector<Bytes> peaks;  ///< by device
};

/// The same tapes in that order, by the times of these tapes; or what is given, where that is not slower or some device
/// would need more memory. The note says which.
SimulatedParts or_work_conserving(const Problem&, SimulatedParts);

}  // namespace plimsoll
