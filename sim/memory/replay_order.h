#pragma once
// In which order the starts and finishes of steps reach an allocator.

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/core/platform.h"
#include "sim/core/schedule.h"
#include "sim/core/timeline.h"
#include "sim/memory/step_orders.h"

namespace plimsoll {

struct ReplayEvent {
  Seconds date;
  std::uint32_t round = 0;
  bool starts = false;
  StreamId stream;
  StepId step;
};

/// Starts and finishes that change a memory, and the starts of steps with an order of their own: by date, then round,
/// finishes before starts, then stream and step.
std::vector<ReplayEvent> replay_order(const Schedule&, const Timeline&, const StepOrders& = {});

}  // namespace plimsoll
