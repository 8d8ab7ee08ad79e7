#pragma once
// A timeline file as what one iteration of it takes: seconds by activity, and how full the memory is.

#include <map>
#include <string>
#include <vector>

#include "validate/profiler/activity.h"
#include "validate/profiler/attribution.h"
#include "validate/profiler/memory_curve.h"

namespace plimsoll {

/// Of an iteration: the median over those that count, and the least and the most.
struct IterationTime {
  Seconds median, least, most;
  Seconds recorded;  ///< the sum over the whole file
};

struct TimelineSummary {
  IterationTime whole;
  std::map<Activity, IterationTime> activities;
  std::size_t iterations = 1;               ///< how many count
  std::vector<std::string> notes;           ///< what was taken for an iteration, and what was left out
  std::optional<IterationTime> idle;        ///< in which no stream of a device worked, in the mean over devices
  std::optional<IterationTime> unlaunched;  ///< of that, with nothing launched; only a profiler's trace says
  std::optional<MemoryCurve> memory;
  double unmatched_share = 0;
};

/// Beyond this share of the devices' time a profiler's trace says too little.
inline constexpr double largest_unmatched_share = 0.05;

// A timeline of ours is one iteration. Of a profiler's, each `ProfilerStep#` is one and takes as long as it holds its
// host thread or its devices, whichever is longer, since the two overlap; without such steps the file is one.
/// Throws InputError where the file is no timeline, or one whose unmatched share is too large.
TimelineSummary summary_of_timeline(const std::filesystem::path&);

}  // namespace plimsoll
