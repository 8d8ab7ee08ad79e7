#pragma once
// Plans that PyTorch has run, held against what they promised: what validate/pytorch/measure.py writes, as a table.

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "sim/core/units.h"
#include "sim/io/json/json.h"
#include "validate/compare.h"

namespace plimsoll {

struct PytorchRun {
  static constexpr double host_binds_from = 0.9;
  static constexpr double control_multiple = 4;

  std::string model, strategy;
  double predicted_relative = 0;  ///< time of that of plain training, which the simulator predicts as well
  WithSpread measured_relative;   ///< of plain training in the same round: the median, half the quartiles' distance
  Bytes predicted_peak, measured_peak;
  std::vector<std::string> differences;  ///< from plain training, bit for bit
  double deviation = 0;          ///< of the numbers that differ, the most, relative to the largest of their tensor
  double control_deviation = 0;  ///< the same of plain training from itself
  /// When the host had issued an iteration, of its time: of the plan's, of plain training's; unset on a CPU.
  std::optional<double> issue_share, plain_issue_share;

  double time_error() const { return predicted_relative / measured_relative.value - 1; }
  /// The time is the host's, of one of the two that are compared.
  bool is_bound_by_host() const {
    return std::max(issue_share.value_or(0), plain_issue_share.value_or(0)) >= host_binds_from;
  }
  /// No further from plain training than a few times what that is from itself.
  bool differs_no_more_than_control() const {
    return deviation > 0 && deviation <= control_multiple * control_deviation;
  }
  double peak_error() const {
    return static_cast<double>(predicted_peak.count) / static_cast<double>(measured_peak.count) - 1;
  }
};

struct PytorchMeasurement {
  std::string device, date, torch;
  std::vector<PytorchRun> runs;
};

/// Throws InputError for what is no measurement.
PytorchMeasurement read_pytorch_measurement(const std::filesystem::path&);

/// Each run, then errors by model and by strategy, how schedules are ranked, and what always guessing 1 would score.
std::string pytorch_table(const PytorchMeasurement&);
Json pytorch_json(const PytorchMeasurement&);

}  // namespace plimsoll
