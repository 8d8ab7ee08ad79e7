#pragma once
// What stops a simulation that is not our own mistake: schedule and platform do not go together, or the process that
// ran it died.

#include <stdexcept>

namespace plimsoll {

struct EngineError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The process that ran the simulation was interrupted (Ctrl-C).
struct SimulationInterrupted : EngineError {
  using EngineError::EngineError;
};

}  // namespace plimsoll
