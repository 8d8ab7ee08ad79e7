#pragma once
// Collectives put into a schedule as flows that engines know.

#include <cstdint>
#include <span>
#include <vector>

#include "sim/core/platform.h"
#include "sim/lower/schedule_builder.h"

namespace plimsoll {

/// aggregated: one flow a ring edge, 2(n-1)/n of the bytes after 2(n-1) latencies; expanded: every one of the 2(n-1)
/// rounds of n flows. Alone on their links both take 2(n-1)(latency + bytes/(n bandwidth)).
enum class Collectives : std::uint8_t { aggregated, expanded };

/// A rank of a collective: its device, the buffers that it adds up in place, and what must have finished before.
struct Rank {
  DeviceId device;
  std::vector<BufferId> buffers;  ///< the same values in the same order on all ranks
  std::vector<StepId> after;
};

/// Ring all-reduce among the ranks, in place. Bytes are those of the first rank's buffers; every share is rounded up to
/// a whole byte. Returns the steps that whoever reads a result must wait for.
std::vector<StepId> ring_all_reduce(ScheduleBuilder&, const Platform&, std::span<const Rank>, Collectives);

}  // namespace plimsoll
