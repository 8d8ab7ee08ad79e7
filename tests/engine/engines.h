#pragma once
// Both engines, and the naive simulator, under one name each, for tests that must hold for all.

#include <catch2/catch.hpp>

#include "sim/engine/event/event_engine.h"
#include "sim/engine/simgrid/simgrid_engine.h"
#include "tests/engine/naive_simulator.h"

namespace plimsoll::test {

struct Engine {
  const char* name;
  Timeline (*simulate)(const Schedule&, const Platform&);
};

inline const Engine event_engine{"event", [](const Schedule& s, const Platform& p) { return simulate_event(s, p); }};
inline const Engine simgrid_engine{"simgrid", simulate_simgrid};
inline const Engine naive_engine{"naive", simulate_naively};

/// The test runs once for each of them.
inline Engine any_engine() {
  return GENERATE(event_engine, simgrid_engine);
}
inline Engine any_simulator() {
  return GENERATE(event_engine, simgrid_engine, naive_engine);
}

}  // namespace plimsoll::test
