#pragma once
// The clock on the wall, for tests of limits in wall time.

#include <chrono>

namespace plimsoll {

inline double wall_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace plimsoll
