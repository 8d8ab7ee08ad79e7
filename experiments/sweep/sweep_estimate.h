#pragma once
// How long a sweep may still take, by what its strategies have taken so far, and what it is at now.

#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <string>

#include "sim/core/units.h"

namespace plimsoll {

class SweepEstimate {
 public:
  using Clock = std::chrono::steady_clock;

  struct Left {
    Seconds seconds;
    bool at_least = false;  ///< some strategy has done nothing yet
  };

  /// So many groups are answered at a time.
  explicit SweepEstimate(std::size_t workers);

  /// There is so much work (any unit that grows with the time it takes) for a strategy.
  void expect(const std::string& strategy, double work);

  /// So much of it has been done, in this time.
  void done(const std::string& strategy, double work, Seconds taken);

  /// The rest at the pace of each strategy, of one that has done nothing yet at that of all, or as long as its groups
  /// that run have taken where that is slower; unset: nothing is done.
  std::optional<Left> left(Clock::time_point now = Clock::now()) const;

  struct Group {
    std::string strategy;
    double work = 0;
    std::string name;  ///< in messages
    Clock::time_point since = Clock::now();
  };

  void started(std::size_t group, Group);
  void ended(std::size_t group);
  /// All of it is done, in the time since it was started.
  void finished(std::size_t group);

  /// The group that has run longest; empty: none runs.
  std::string now() const;

 private:
  struct Pace {
    double expected = 0, done = 0;
    Seconds taken{};
  };

  std::size_t workers_;
  std::map<std::string, Pace> paces_;
  std::map<std::size_t, Group> running_;
};

}  // namespace plimsoll
