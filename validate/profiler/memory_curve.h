#pragma once
// How full a memory was over an iteration, as two timelines of different clocks and lengths can be compared.

#include <array>
#include <span>

#include "validate/profiler/chrome_trace.h"

namespace plimsoll {

struct MemoryCurve {
  Bytes peak, mean;             ///< the mean over time
  std::array<Bytes, 101> at{};  ///< after 0 %, 1 %, ... 100 % of the iteration
};

/// The total that holds from a date on.
struct DatedTotal {
  Nanoseconds date = 0;
  Bytes total;
};

/// Of totals by date, from `begin` to `end`; before the first date its total holds. Nothing without any.
std::optional<MemoryCurve> curve_of(std::span<const DatedTotal>, Nanoseconds begin, Nanoseconds end);

/// How far apart two curves are.
struct CurveDistance {
  Bytes mean, most;
  std::size_t most_at = 0;  ///< percent of the iteration
};
CurveDistance distance(const MemoryCurve&, const MemoryCurve&);

}  // namespace plimsoll
