#pragma once
// In which order one host thread gives a schedule's steps to a GPU, and what the GPU's dates then say.

#include <optional>
#include <span>
#include <vector>

#include "sim/core/platform.h"
#include "sim/core/schedule.h"
#include "sim/core/timeline.h"

namespace plimsoll {

/// A step begins: it takes memory and is issued. Or ends: its memory may be given to what begins after it.
struct IssueEvent {
  StepId step;
  bool begins = false;

  friend bool operator==(const IssueEvent&, const IssueEvent&) = default;
};

/// By the dates that are expected, or in the order of the schedule; whatever the dates say, nothing begins before the
/// ends of its predecessor on the stream and of all that it waits for.
std::vector<IssueEvent> issue_order(const Schedule&, const std::optional<Timeline>& expected);

/// The timeline of what each step's two events measured: dates from the first start, live peaks of every memory.
/// Clocks of several devices and rounding may contradict the order by a little: then the later date holds for both.
Timeline measured_timeline(const Schedule&, const Platform&, std::span<const IssueEvent> order,
                           const std::vector<Interval>& measured);

}  // namespace plimsoll
