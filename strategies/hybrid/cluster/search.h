#pragma once
// The fastest point of a space: bounded in closed form, simulated in the order of the bounds until none that is left
// can be faster.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "strategies/hybrid/cluster/bounds.h"
#include "strategies/hybrid/cluster/space.h"

namespace plimsoll {

/// What the simulation of a point has given: a time, or why none, and what it needs at least, where that is why.
struct ClusterOutcome {
  std::optional<Seconds> makespan;
  Bytes peak;
  std::string reason = {};
  std::optional<Bytes> smallest = {};
  bool lacks_host_memory = false;  ///< that is the reason
};

/// What a rank's graph costs, or in one sentence why there is none.
using RankCostsOf =
    std::function<std::variant<RankCosts, std::string>(std::uint32_t samples, const ComposedPoint& of_rank)>;
/// What a pipeline among so many micro-batches of all replicas is planned for: the chain of a rank, without updates.
/// Nothing where there is none.
using StageProblemOf =
    std::function<std::optional<Problem>(std::uint32_t samples, std::uint32_t micro_batches, const ComposedPoint&)>;
/// What no plan on all devices takes less than, after these transforms, or in one sentence why there is none; `splits`:
/// even if devices share out single operators.
struct WholeBound {
  Seconds time;
  MemoryBound memory;  ///< of the fullest device
};
using WholeBoundOf = std::function<std::variant<WholeBound, std::string>(std::uint32_t samples,
                                                                         const ComposedPoint& transforms, bool splits)>;
using OutcomeOf = std::function<ClusterOutcome(const ClusterPoint&, const ComposedPoint&)>;
/// What a point's plan within unlimited memory takes if nothing shares a link or a host and no copy slows a kernel
/// down. Nothing where there is none, or where hosts that issue tell when steps begin.
using AloneOf = std::function<std::optional<Seconds>(const ClusterPoint&, const ComposedPoint&)>;

/// How far a search is.
struct ClusterProgress {
  std::size_t points, bounded, simulated;  ///< all are bounded before the first is simulated
  std::optional<Seconds> best = {};        ///< so far
  Seconds bound = {};                      ///< no point that is left takes less
  std::function<std::size_t()> left = {};  ///< points that may still be faster, by what is known now
};

struct ClusterQuestion {
  const Platform& platform;
  ClusterExtent extent;
  std::optional<Bytes> budget;  ///< of each device
  RankCostsOf rank_costs;
  StageProblemOf stage_problem;
  WholeBoundOf whole_bound;
  OutcomeOf outcome;
  AloneOf alone;
  std::optional<ClusterPoint> first = {};  ///< to simulate, of the space: likely one of the fastest
  bool asks_least = true;                  ///< where nothing fits: how much the least needs
  /// Is told between points how far the search is; false: it ends once there is a best. Null: it goes on.
  std::function<bool(const ClusterProgress&)> goes_on = {};
};

struct ClusterRow {
  ClusterPoint point;
  bool sequence = false;  ///< whether positions between blocks are shared out
  Seconds bound;
  MemoryBound memory;
  std::pair<bool, Seconds> guess = {};  ///< of devices that are not alike: whether it fits not, and its time
  /// What the bounds are about: costs of a rank alone, the times of a replica's stages, the order of its turns. Without
  /// a pipeline the first tells all.
  enum class Known : std::uint8_t { rank, stages, order } known = Known::rank;
  bool has_device_twin = false;                ///< the same point with updates on devices alone is in the space, too
  bool is_too_large = false;                   ///< by the bound on memory, once the cut is known
  bool is_raised = false;                      ///< to what the same that offloads nothing takes without contention
  std::optional<ClusterOutcome> outcome = {};  ///< once simulated

  ComposedPoint as() const { return composed(point, sequence); }
};

struct ClusterAnswer {
  std::size_t points = 0;            ///< of the space
  std::size_t refused = 0;           ///< that cannot be: whose ranks have no graph, or no links
  std::string refused_because = {};  ///< the first of these
  std::size_t too_large = 0;         ///< by the bound on memory
  std::size_t simulated = 0;
  std::optional<std::size_t> best = {};  ///< of `rows`
  std::vector<ClusterRow> rows;          ///< within memory by the bound, those with the least bound on time first
  Seconds bound;  ///< no point takes less: the least of those that are not simulated, at most the best
  bool is_proven = false;
  bool is_stopped = false;     ///< the question has not let it go on
  std::optional<Bytes> least;  ///< that a point needs, by a simulation or by bounds alone
  bool is_least_simulated = false;
  bool is_least_proven = false;  ///< no point of the space needs less
  MemoryBound least_parts = {};  ///< by bounds: what the point of the least bound consists of

  /// time / bound - 1 of the best.
  double gap() const;
};

ClusterAnswer cluster_search(const ClusterQuestion&, const ClusterOptions&);

/// All points of the space with the first of their bounds, and none simulated: `rows` hold those that do not fit, too.
ClusterAnswer cluster_bounds(const ClusterQuestion&, const ClusterOptions&);

/// Gives rows the best bounds that are known.
void tighten(const ClusterQuestion&, std::span<ClusterRow>);

/// Takes the answer within this budget, then within a byte less than each has needed, until nothing fits: each is that
/// of a search by itself. They share bounds and what they have simulated. `limit` is told the budget of the outcomes
/// that are asked next.
void cluster_front(ClusterQuestion, const ClusterOptions&, Bytes budget, const std::function<void(Bytes)>& limit,
                   const std::function<void(const ClusterAnswer&)>& take);

}  // namespace plimsoll
