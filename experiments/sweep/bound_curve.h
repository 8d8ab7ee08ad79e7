#pragma once
// The bound on an iteration's time within each budget, and what a byte is worth there: the curve that reports draw
// under the measured points.

#include <cstddef>
#include <string_view>
#include <vector>

#include "sim/io/json/json.h"
#include "sim/model/problem.h"

namespace plimsoll {

struct BoundAt {
  Bytes budget;
  Seconds time;        ///< no schedule is faster
  double price = 0;    ///< seconds by which the bound falls with a byte more, halfway to the next budget
  bool bends = false;  ///< other cuts are the best below
};

/// From the most down to where nothing fits: budgets evenly apart, and the nearest bend below each. Ascending.
std::vector<BoundAt> bound_curve(const Problem&, bool copies, Bytes least, Bytes most, std::size_t budgets);

/// Of problems on one device that has one compute stream, else empty: a curve for schedules that only run ops again,
/// and one for those that also copy, if values can leave the device.
Json bound_curves_json(const Problem&, Bytes least, Bytes most);

}  // namespace plimsoll
