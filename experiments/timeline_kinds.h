#pragma once
// A timeline file in Chrome's trace format, ours or a profiler's, as seconds by kind of step.

#include <map>
#include <optional>
#include <string>

#include "sim/core/schedule.h"

namespace plimsoll {

struct TimelineKinds {
  std::map<StepKind, Seconds> seconds;  ///< summed over events of each kind
  Seconds span;                         ///< from the first event's start to the last one's end
  std::optional<Bytes> peak;            ///< largest sum of a memory counter of the first device; unset without counters
};

/// Our own timelines say the kind of every step. Of Kineto's (PyTorch's profiler), copies to host and device count as
/// offload and prefetch; operators, or kernels where there are any, as update inside `Optimizer.step`, as backward
/// inside `autograd::engine::evaluate_function`, else as forward; recomputing cannot be told apart there. Throws where
/// the text is no such file.
TimelineKinds kinds_of_timeline(const std::string& text, const std::string& file);

}  // namespace plimsoll
