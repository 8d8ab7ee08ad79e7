#pragma once
// The iterations of a profiler's trace: its steps, in the order of their starts, or the whole of it.

#include <map>
#include <span>
#include <string>
#include <vector>

#include "validate/profiler/attribution.h"

namespace plimsoll {

/// What one step, or the whole file, took.
struct Iteration {
  RecordedStep step;
  std::map<Activity, Seconds> activities{};
  Unmatched unmatched{};
  Nanoseconds device_begin = 0, device_end = 0;  ///< of its work
  bool works = false;                            ///< whether devices do
  std::optional<Nanoseconds> after{};            ///< when the work of the step before was over

  void add(const Spent&, bool by_device);
  /// From the end of the last work of the step before to that of its own, since hosts run ahead of devices. Where no
  /// step before is known, what it holds its host's thread or its devices, whichever is longer.
  Nanoseconds length() const;
  Seconds whole() const { return seconds(length()); }
};

/// The mean of the middle two where there is no middle.
double middle_of(std::vector<double>);

class Iterations {
 public:
  explicit Iterations(const Recording&);

  void add(const Spent&);

  /// To be called once, after all is added. Steps in which nothing happened are gone (the profiler opens one more
  /// before it stops), and so are the first, and those after it that took over half as long again as the median of what
  /// follows: they allocate, choose algorithms, compile. The last two stay. Returns what is gone, and why.
  std::vector<std::string> leave_out();

  std::span<const Iteration> counted() const { return each_; }
  bool whole_file() const { return whole_file_; }
  const std::map<Activity, Seconds>& recorded() const { return recorded_; }

  /// Of the steps that count.
  Unmatched unmatched() const;
  IdleTime idle(const Iteration&, const BusyTimes&) const;
  /// All work of devices, also of steps that do not count.
  std::vector<BusyTime> take_busy() { return std::move(busy_); }

 private:
  Iteration* of_date(Nanoseconds);
  void place_lost();
  void find_ends_before();
  bool is_slow(std::size_t index) const;

  std::vector<Iteration> each_;
  std::vector<Spent> lost_;  // without a launch
  std::vector<BusyTime> busy_;
  std::map<Activity, Seconds> recorded_;
  bool by_device_ = false, whole_file_ = false;
};

}  // namespace plimsoll
