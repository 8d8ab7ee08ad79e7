#pragma once
// What every kernel, copy and operator of a recording is for.

#include <functional>

#include "validate/profiler/recording.h"

namespace plimsoll {

/// A stretch of time of one device's stream, or of one thread where no device worked.
struct Spent {
  Nanoseconds launched = 0;  ///< when the host asked for it; its start where nobody knows
  Nanoseconds start = 0, end = 0;
  Activity activity = Activity::unmatched;
  std::uint32_t device = 0;
};

/// Why kernels are unmatched, and how long they took.
struct Unmatched {
  Seconds launch_missing;     ///< no launch has their correlation id
  Seconds thread_unknown;     ///< launched by a thread that ran no operator
  Seconds of_whole_graph;     ///< launched as a graph outside of any operator
  Seconds direction_unknown;  ///< a copy that does not say where from and to
  Seconds of;                 ///< all work of devices but communication

  Seconds sum() const { return launch_missing + thread_unknown + of_whole_graph + direction_unknown; }
  double share() const { return of.value > 0 ? sum() / of : 0; }
};

// A kernel belongs to its launch by correlation id (not by external id, whose meaning changed between versions), the
// launch to the ranges of its thread that are open at its start. Of these the innermost that says something decides:
// autograd running a node, an optimizer's step, gradients set to zero; else it is the forward pass. Within a node an
// operator that autograd records runs a forward pass again (checkpoints by hooks), and a node of a checkpoint does so
// outside of the nodes that it runs itself (reentrant checkpoints).
// Without work of devices, operators are it: every moment in which a thread is within one counts once.
/// Sorts the recording's lists.
Unmatched attribute(Recording&, const std::function<void(const Spent&)>& spend);

}  // namespace plimsoll
