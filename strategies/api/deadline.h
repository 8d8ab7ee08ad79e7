#pragma once
// The wall time that a solver may still use.

#include <algorithm>
#include <chrono>

namespace plimsoll {

class Deadline {
 public:
  explicit Deadline(double seconds) : end_(Clock::now() + std::chrono::duration<double>(seconds)) {}

  /// Seconds; 0 once it has passed.
  double left() const { return std::max(0.0, std::chrono::duration<double>(end_ - Clock::now()).count()); }
  bool passed() const { return left() == 0; }

 private:
  using Clock = std::chrono::steady_clock;
  std::chrono::time_point<Clock, std::chrono::duration<double>> end_;
};

}  // namespace plimsoll
