#pragma once
// What one schedule came to, predicted and measured, and all of them together.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "experiments/measure/legal_peaks.h"
#include "sim/io/json/json.h"
#include "validate/compare.h"

namespace plimsoll {

struct PredictedAndMeasured {
  Bytes predicted, measured;

  double error() const { return static_cast<double>(predicted.count) / static_cast<double>(measured.count) - 1; }
};

/// What is asked for. Of live peaks: how far they lie beyond what the schedule's order allows, relative to the measured
/// one.
struct Bars {
  double time_mean = 0, time_worst = 0, peak = 0, reserved = 0, tau = 0;
};
inline constexpr Bars cpu_bars{.time_mean = 0.03, .time_worst = 0.10, .peak = 0, .reserved = 0.05, .tau = 0.9};
inline constexpr Bars gpu_bars{.time_mean = 0.03, .time_worst = 0.08, .peak = 0.001, .reserved = 0.05, .tau = 0.9};

/// Times are relative to store_all of the same run.
struct ValidationRow {
  std::string network, strategy;
  Bytes budget;
  double predicted = 0;
  WithSpread measured;
  Seconds predicted_time, measured_time;
  Bytes predicted_peak, measured_peak;           ///< live; the measured one of the round that is furthest off
  LegalPeaks legal;                              ///< what the schedule's own order allows
  std::optional<PredictedAndMeasured> reserved;  ///< where an allocator was measured; the one that differs most
  std::map<StepKind, Seconds> predicted_kinds, measured_kinds;

  double error() const { return predicted / measured.value - 1; }
  /// Of always guessing that a schedule is as fast as store_all.
  double error_of_guess() const { return 1 / measured.value - 1; }
};

/// How far a peak lies beyond what is legal; 0 within.
Bytes outside(Bytes peak, const LegalPeaks&);

Json to_json(const ValidationRow&);

/// Errors of all rows, tau-b network by network and its mean, and whether the bars hold.
Json summary_json(const std::vector<ValidationRow>&, const Bars&);

/// Everything as a table for people.
std::string validation_table(const std::vector<ValidationRow>&, const Bars&);

}  // namespace plimsoll
