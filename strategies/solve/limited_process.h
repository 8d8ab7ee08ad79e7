#pragma once
// Work in a process of its own, which ends when its time or memory does: for solvers that heed no limit themselves.

#include <functional>
#include <span>
#include <vector>

#include "sim/core/units.h"

namespace plimsoll {

struct ProcessLimits {
  double seconds = 60;                  ///< wall time
  Bytes memory = Bytes{1'000'000'000};  ///< beside what this process has mapped already
};

/// What the work said until it ended.
struct ProcessResult {
  enum class End { finished, out_of_time, died };  ///< it dies where it gets no more memory
  End end = End::died;
  std::vector<std::vector<double>> messages;
};

using SendMessage = std::function<void(std::span<const double>)>;

/// The work sees a copy of everything; what it sends is all that it leaves behind.
ProcessResult run_limited(const ProcessLimits&, const std::function<void(const SendMessage&)>& work);

}  // namespace plimsoll
