#pragma once
// Measurements become files: a platform with this machine's rates, a trace with its times.

#include <functional>
#include <string>

#include "sim/core/platform.h"
#include "traces/trace_file.h"
#include "validate/backend.h"
#include "validate/op_times.h"

namespace plimsoll {

/// How a measurement was made, for the head of every file.
struct MeasuredBy {
  std::string made_by, date;
  std::string device, library;  ///< as Backend has them
};

/// `2026-11-21`, in UTC.
std::string today();

/// The platform file's text: shape, sizes and names of the template, rates as measured. Throws where the template is
/// not one device, one host and one link.
std::string calibrated_platform(const Platform& shape, const std::string& name, const MachineRates&, const MeasuredBy&);

/// Paces of the template's link for measuring at.
LinkPace pace_to_host(const Platform&);
LinkPace pace_to_device(const Platform&);

/// How long each part of a backward takes: a chain whose backwards are split, a schedule that runs them, and what
/// that measured.
struct SplitBackwards {
  Problem problem;
  Schedule sweeps;
  OpTimes times = {};
};

/// Of a trace's chain; nothing for a graph, whose ops are measured as they are.
std::optional<SplitBackwards> split_backwards(const Trace&, const Platform&, Optimizer);

/// The model with measured times. Of a chain: those of its parts of backwards too.
Trace calibrated_trace(Trace, const Problem&, const OpTimes&, const std::optional<SplitBackwards>&, const MeasuredBy&);

}  // namespace plimsoll
