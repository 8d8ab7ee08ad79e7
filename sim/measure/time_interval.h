#pragma once
// Between which times an iteration lies, from how far off the figures were on kernels of the same sorts that they had
// not seen.

#include <string>
#include <variant>
#include <vector>

#include "sim/core/schedule.h"
#include "sim/core/timeline.h"
#include "sim/model/problem.h"

namespace plimsoll {

/// A part of an iteration whose kernels share their error: its predicted time, and measured / predicted of a tenth and
/// of nine tenths of such kernels.
struct TimeShare {
  std::string sort;
  Seconds time;
  double low = 1, high = 1;
};

/// Errors of one sort are taken to be the same for all its kernels, and the least of one sort to meet the least of all
/// others: nothing averages out.
struct TimeInterval {
  Seconds low, high;
  std::vector<TimeShare> shares;  ///< by name; their times sum to the iteration
};

/// From the device that is busiest: each second there has the spread of its sort, waiting and copies that of all the
/// others in the mean. Where there is no interval the reason, in words.
std::variant<TimeInterval, std::string> time_interval(const Problem&, const Schedule&, const Timeline&);

/// Whether one of two iterations of the same model is the longer one however far off each sort of kernels is within its
/// spread. Errors of a sort are common to both: only what one has more of counts.
bool told_apart(const std::vector<TimeShare>&, const std::vector<TimeShare>&);

}  // namespace plimsoll
