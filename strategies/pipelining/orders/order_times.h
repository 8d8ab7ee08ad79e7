#pragma once
// How long an order of a pipeline's turns takes, and what its ranks keep, without making a schedule: the evaluator of
// searches over orders. The time is the event engine's, up to rounding, where every part trains plainly and transfers
// do not share bandwidth: those into one device at a time are timed as if they were alone, and sums of gradients left
// out.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "strategies/pipelining/orders/orders.h"

namespace plimsoll {

struct OrderTimes {
  std::vector<double> first, last;  ///< by rank: start of its first turn and end of its last one; both 0 without turns
  std::vector<Turn> stuck;          ///< where ranks wait in a circle: each one's next turn; else empty

  double makespan() const;
  double longest() const;  ///< of all ranks: from its first turn to the end of its last one
};

/// Whether transfers of one direction between two ranks follow each other, or each takes its time alone: then nothing
/// takes longer than in a simulation.
enum class TransferTimes : std::uint8_t { one_by_one, alone };

/// Each rank takes its turns in order, as soon as what they read has arrived.
OrderTimes time_order(const PartCosts&, std::uint32_t micro_batches, const PipelineOrder&,
                      TransferTimes = TransferTimes::one_by_one);

/// The one with the least makespan; of those, the one whose longest rank is shortest. There is one at least.
const PipelineOrder& shortest(const PartCosts&, std::uint32_t micro_batches, std::span<const PipelineOrder>);

/// Makes an order for the given costs, if it finds one.
using OrderHeuristic = std::function<std::optional<PipelineOrder>(const PartCosts&)>;

/// The shortest of the orders that a heuristic makes for many transfer times, from none to 16 of the longest pass,
/// which are the same on every network. A faster network makes no order longer, so neither the shortest of these. Where
/// the heuristic finds none for them, what it finds for those there are.
std::optional<PipelineOrder> shortest_for_any_network(const PartCosts&, std::uint32_t micro_batches,
                                                      const OrderHeuristic&);

/// By rank: the most bytes that are kept after a forward.
std::vector<std::int64_t> kept_at_most(const PartCosts&, const PipelineOrder&);

/// By rank: `limit` times what as many micro-batches as there are ranks keep of its parts.
std::vector<std::int64_t> limits_of(const PartCosts&, std::span<const std::uint32_t> rank_of, double limit);

/// The same with a limit for each rank.
std::vector<std::int64_t> limits_of(const PartCosts&, std::span<const std::uint32_t> rank_of,
                                    std::span<const double> limits);

/// The least limit, rounded up to four digits after the point, with which every rank may keep so much.
double limit_for(const PartCosts&, std::span<const std::uint32_t> rank_of, std::span<const std::int64_t> kept);

/// That for all parts of one micro-batch at a time.
double least_limit(const PartCosts&, std::span<const std::uint32_t> rank_of);

}  // namespace plimsoll
