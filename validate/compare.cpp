#include "validate/compare.h"

#include <algorithm>
#include <cmath>

#include "sim/core/expects.h"
#include "validate/op_times.h"

namespace plimsoll {

std::map<StepKind, Seconds> seconds_by_kind(const Schedule& schedule, const Timeline& timeline) {
  std::map<StepKind, Seconds> sums;
  for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
    sums[schedule.steps[s].kind] += timeline.steps[s].finish - timeline.steps[s].start;
  }
  return sums;
}

ErrorSummary summary_of(const std::vector<double>& relative_errors) {
  if (relative_errors.empty()) return {};
  ErrorSummary summary;
  std::vector<double> sizes;
  for (const double error : relative_errors) {
    sizes.push_back(std::abs(error));
    summary.mean += std::abs(error) / static_cast<double>(relative_errors.size());
    if (std::abs(error) > std::abs(summary.worst)) summary.worst = error;
  }
  summary.median = median(std::move(sizes));
  return summary;
}

Ranking ranking_of(const std::vector<double>& predicted, const std::vector<WithSpread>& measured) {
  EXPECTS(predicted.size() == measured.size());
  Ranking ranking;
  double balance = 0, ranked_predicted = 0, ranked_measured = 0;
  for (std::size_t a = 0; a < predicted.size(); ++a) {
    for (std::size_t b = a + 1; b < predicted.size(); ++b) {
      const double p = predicted[b] - predicted[a], m = measured[b].value - measured[a].value;
      const double spread = std::max(measured[a].spread, measured[b].spread);
      const bool differ_predicted = std::abs(p) > spread, differ_measured = std::abs(m) > spread;
      ++ranking.pairs;
      ranking.outside_noise += differ_measured ? 1 : 0;
      ranking.ranked_right += differ_measured && p * m > 0 ? 1 : 0;
      ranked_predicted += differ_predicted ? 1 : 0;
      ranked_measured += differ_measured ? 1 : 0;
      if (differ_predicted && differ_measured) balance += (p > 0) == (m > 0) ? 1 : -1;
    }
  }
  const double ranked = std::sqrt(ranked_predicted * ranked_measured);
  if (ranked > 0) ranking.tau_b = balance / ranked;
  return ranking;
}

}  // namespace plimsoll
