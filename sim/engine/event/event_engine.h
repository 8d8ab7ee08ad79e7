#pragma once
// The own engine: an event loop, exact, fast, without global state, so that threads may simulate at once.
// Steps without a route on a copy or peer stream are delays: kernels alone are slowed down by transfers (dispatcher.h).

#include "sim/core/platform.h"
#include "sim/core/schedule.h"
#include "sim/core/timeline.h"
#include "sim/engine/program.h"

namespace plimsoll {

/// When each step runs. Throws EngineError where schedule and platform do not go together.
Timeline simulate_event(const Schedule&, const Platform&);

/// The same for a schedule that is flattened already.
Timeline simulate_event(const Program&);

}  // namespace plimsoll
