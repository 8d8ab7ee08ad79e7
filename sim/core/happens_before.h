#pragma once
// Which steps of a schedule must have finished before which others start, whatever the durations: by the order on
// streams and by waits. Vector clocks, one entry a stream, made anew only where a step waits.

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/core/schedule.h"

namespace plimsoll {

class HappensBefore {
 public:
  /// Every wait must name an earlier step.
  explicit HappensBefore(const Schedule&);

  /// Whether `a` has finished when `b` starts. A step does not precede itself.
  bool operator()(StepId a, StepId b) const;

 private:
  const Schedule& schedule_;
  std::vector<std::uint32_t> position_;             ///< by step: its number on its stream, from 1
  std::vector<std::uint32_t> clock_;                ///< by step: which of `clocks_` holds at its start
  std::vector<std::vector<std::uint32_t>> clocks_;  ///< by stream: how many of its steps have finished
};

}  // namespace plimsoll
