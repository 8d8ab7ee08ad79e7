#pragma once
// Plans that PyTorch has run, held against what they promised: what validate/pytorch/measure.py writes, as a table.

#include <filesystem>
#include <string>
#include <vector>

#include "sim/core/units.h"
#include "sim/io/json.h"
#include "validate/compare.h"

namespace plimsoll {

struct PytorchRun {
  std::string model, strategy;
  double predicted_relative = 0;  ///< time of that of plain training, which the simulator predicts as well
  WithSpread measured_relative;   ///< of plain training in the same round: the median, half the quartiles' distance
  Bytes predicted_peak, measured_peak;
  std::vector<std::string> differences;  ///< from plain training, bit for bit

  double time_error() const { return predicted_relative / measured_relative.value - 1; }
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
