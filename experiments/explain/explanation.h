#pragma once
// Why an iteration takes as long and as much memory as it does, and what would make it faster.

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "experiments/explain/better_plans.h"
#include "experiments/study/choice/several_devices.h"
#include "experiments/study/memory_by_kind.h"
#include "sim/measure/memory_profile.h"

namespace plimsoll {

/// What would have to be faster, or more, for a step to take less time.
enum class PathLimit : std::uint8_t {
  compute,  ///< the device's own work
  memory,   ///< ops that run again, packing and unpacking: work for want of memory
  link,     ///< copies and collectives
  host,     ///< what hosts issue and update
};

/// Steps of the critical path that follow each other on one stream, with one limit and of one kind.
struct PathPart {
  StreamId stream;
  PathLimit limit{};
  StepKind kind{};
  Seconds start, time;
  std::size_t steps = 0;
  std::string first, last;  ///< names of steps
  bool issues = false;      ///< of a host that issues kernels
};

/// A value in memory at a peak.
struct ValueAtPeak {
  BufferId buffer;
  std::optional<StepId> made;   ///< unset: there from the start
  std::optional<StepId> freed;  ///< unset: there at the end
};

struct PeakContents {
  MemoryId memory;
  MemoryPeak peak;
  BytesByKind by_kind{};
  std::array<std::size_t, memory_kinds> buffers{};  ///< how many, by kind
  std::vector<ValueAtPeak> largest;                 ///< ten at most, the largest first
};

struct Explanation {
  std::vector<DeviceTime> devices;  ///< sum to the makespan on each
  std::vector<Stream> streams;      ///< that parts of the path name: the schedule's, then those of issuing hosts
  std::vector<PathPart> path;       ///< times sum to the makespan
  std::size_t path_steps = 0;
  std::array<Seconds, 4> limits{};      ///< of the path, by PathLimit
  std::vector<PeakContents> memories;   ///< that ever hold something
  std::optional<BetterPlans> better{};  ///< unset: not asked
};

enum class Better : std::uint8_t { no, looked_for };

/// Of an answer that has a schedule.
Explanation explain(const AnsweredQuestion&, Better);

template <>
struct Names<PathLimit> {
  static constexpr std::array all{std::pair{PathLimit::compute, "compute"}, std::pair{PathLimit::memory, "memory"},
                                  std::pair{PathLimit::link, "link"}, std::pair{PathLimit::host, "host"}};
};

/// Of which the path has the most; of equals the first.
PathLimit most_limiting(const Explanation&);

}  // namespace plimsoll
