#pragma once
// What every kernel, copy and operator of a recording is for.

#include <functional>
#include <map>

#include "validate/profiler/recording.h"

namespace plimsoll {

/// Why nobody knows what a kernel or a copy is for.
enum class Cause : std::uint8_t {
  known,
  launch_missing,     ///< no launch has its correlation id
  thread_unknown,     ///< launched by a thread that ran no operator
  of_whole_graph,     ///< launched as a graph outside of any operator
  direction_unknown,  ///< a copy that does not say where from and to
};

/// A stretch of time of one device's stream, or of one thread where no device worked.
struct Spent {
  Nanoseconds launched = 0;  ///< when the host asked for it; its start where nobody knows
  Nanoseconds start = 0, end = 0;
  Activity activity = Activity::unmatched;
  std::uint32_t device = 0;
  Cause cause = Cause::known;
};

/// Why work of devices is unmatched, and how long it took.
struct Unmatched {
  std::map<Cause, Seconds> times;
  Seconds of;  ///< all work of devices but communication

  void add(const Spent&);
  void add(const Unmatched&);
  Seconds sum() const;
  double share() const { return of.value > 0 ? sum() / of : 0; }
};

// A kernel belongs to its launch by correlation id (not by external id, whose meaning changed between versions), the
// launch to the ranges of its thread that are open at its start. Of these the innermost that says something decides:
// autograd running a node, an optimizer's step, gradients set to zero; else it is the forward pass. Within a node an
// operator that autograd records runs a forward pass again (checkpoints by hooks), and a node of a checkpoint does so
// outside of the nodes that it runs itself (reentrant checkpoints).
// Recordings of 2021 have no events of the engine: there a thread that runs nodes and records nothing besides is the
// engine's, and what it does between them too.
// Without work of devices, operators are it: every moment in which a thread is within one counts once.
/// Sorts the recording's lists.
void attribute(Recording&, const std::function<void(const Spent&)>& spend);

}  // namespace plimsoll
