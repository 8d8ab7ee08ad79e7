#pragma once
// How far a sweep is and how long it may still take, on stderr: one line rewritten on a terminal, else a line now and
// then.

#include <chrono>
#include <cstddef>
#include <string_view>

namespace plimsoll {

class Progress {
 public:
  /// `what` there are, in the plural.
  explicit Progress(std::size_t count, std::string_view what = "points");
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void add(bool feasible = true);
  void show();

  /// Makes room for a message on stderr.
  void clear_line();

 private:
  using Clock = std::chrono::steady_clock;

  std::string_view what_;
  std::size_t count_, done_ = 0, infeasible_ = 0;
  bool terminal_, shown_ = false;
  Clock::time_point started_, last_;
};

}  // namespace plimsoll
