#pragma once
// Periodic orders of a pipeline, on devices with one part or several: when the passes of one micro-batch begin, so that
// the next one's begin a period later, and the order of turns that follows.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "sim/core/partition.h"
#include "sim/model/problem.h"
#include "strategies/pipelining/cuts/cuts.h"
#include "strategies/pipelining/orders/orders.h"

namespace plimsoll {

/// By part: when the first micro-batch's forward and its whole backward begin, in the unit of the costs.
struct PeriodicTimes {
  double period = 0;
  std::vector<double> forward, backward;
};

/// In which no two passes of a rank overlap, and part g keeps `in_flight[g]` micro-batches at most. Transfers hide and
/// do not queue. Nothing where there is no such order of that period, or where a search of 20,000 steps has found none.
/// Decides for two passes that overlap which one is first, one pair after the other.
std::optional<PeriodicTimes> periodic_times(const PartCosts&, std::span<const std::uint32_t> rank_of,
                                            std::span<const std::uint32_t> in_flight, double period);

/// The turns of m micro-batches in the order of those times.
PipelineOrder unrolled(const PeriodicTimes&, std::span<const std::uint32_t> rank_of, std::uint32_t m);

// cut=madpipe of 1f1b: MadPipe's stages, of which one device may have several, in the order 1F1B*.

inline constexpr std::string_view star_cut = "madpipe";

/// The fastest, for the problem's micro-batches, of: 1F1B* on one stage a device; 1F1B there, if it fits; a periodic
/// order where one device has several stages. Within the budget in plain training or, where none fits, what needs the
/// least.
Partition star_partition(const Problem&, std::string_view strategy, std::uint32_t ranks,
                         const std::optional<Bytes>& budget);

}  // namespace plimsoll
