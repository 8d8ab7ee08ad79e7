#pragma once
// What one schedule came to, predicted and measured, and all of them together.

#include <map>
#include <string>
#include <vector>

#include "sim/io/json.h"
#include "validate/compare.h"

namespace plimsoll {

/// Times are relative to store_all of the same run.
struct ValidationRow {
  std::string network, strategy;
  Bytes budget;
  double predicted = 0;
  WithSpread measured;
  Seconds predicted_time, measured_time;
  Bytes predicted_peak, measured_peak;  ///< live; the measured one that differs most of all rounds
  std::map<StepKind, Seconds> predicted_kinds, measured_kinds;

  double error() const { return predicted / measured.value - 1; }
};

Json to_json(const ValidationRow&);

/// Errors of all rows, tau-b network by network and its mean, bars of the issue and whether they hold.
Json summary_json(const std::vector<ValidationRow>&);

/// Everything as a table for people.
std::string validation_table(const std::vector<ValidationRow>&);

}  // namespace plimsoll
