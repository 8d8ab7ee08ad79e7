#pragma once
// The oracle of small cases: recomputes everything at every event from the definitions, shares no code with the
// engines, and is slow.

#include "sim/core/platform.h"
#include "sim/core/schedule.h"
#include "sim/core/timeline.h"

namespace plimsoll::test {

Timeline simulate_naively(const Schedule&, const Platform&);

}  // namespace plimsoll::test
