#pragma once
// How far a sweep is and how long it may still take, on stderr: one line rewritten on a terminal, else a line now and
// then.

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "sim/core/units.h"

namespace plimsoll {

class Progress {
 public:
  /// `what` there are, in the plural. Quiet: nothing is said.
  explicit Progress(std::size_t count, std::string_view what = "points", bool quiet = false);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void add(bool feasible = true);
  void add_failed() { ++failed_; }

  /// What is known better than by counting: how long the rest takes.
  void tell_left(Seconds, bool at_least);
  /// What runs now; empty: not known.
  void tell_now(std::string);

  void show();

  /// Makes room for a message on stderr.
  void clear_line();

 private:
  using Clock = std::chrono::steady_clock;

  std::string_view what_;
  std::size_t count_, done_ = 0, infeasible_ = 0, failed_ = 0;
  std::optional<Seconds> left_;
  bool at_least_ = false;
  std::string now_;
  bool terminal_, quiet_, shown_ = false;
  Clock::time_point started_, last_;
};

}  // namespace plimsoll
