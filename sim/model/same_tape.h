#pragma once
// Whether two tapes are one: planners give the same one for many budgets, and it need be looked at only once.

#include "sim/core/tape.h"

namespace plimsoll {

bool same(const Tape&, const Tape&);

}  // namespace plimsoll
