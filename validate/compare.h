#pragma once
// Prediction against measurement: errors of time and memory, and whether schedules are ranked alike.

#include <map>
#include <string>
#include <vector>

#include "sim/core/schedule.h"
#include "sim/core/timeline.h"

namespace plimsoll {

/// Seconds spent by steps of each kind; copies and kernels that run at once count both.
std::map<StepKind, Seconds> seconds_by_kind(const Schedule&, const Timeline&);

struct ErrorSummary {
  double mean = 0, median = 0;  ///< of the absolute relative errors
  double worst = 0;             ///< the largest in size, with its sign
};
ErrorSummary summary_of(const std::vector<double>& relative_errors);

/// A measured value and half the width within which others count as equal to it.
struct WithSpread {
  double value = 0, spread = 0;
};

struct Ranking {
  double tau_b = 1;
  std::size_t pairs = 0;
  std::size_t outside_noise = 0;  ///< pairs whose measured values differ by more than the larger of their spreads
  std::size_t ranked_right = 0;   ///< of these, predicted in the same order
};

// Kendall's tau-b: (concordant - discordant) / sqrt((pairs - ties in x) (pairs - ties in y)). Two schedules are tied in
// either, predicted or measured, where they differ by at most the larger of their measured spreads. Source: Kendall,
// "The Treatment of Ties in Ranking Problems", 1945. 1 where nothing is left to rank.
Ranking ranking_of(const std::vector<double>& predicted, const std::vector<WithSpread>& measured);

}  // namespace plimsoll
