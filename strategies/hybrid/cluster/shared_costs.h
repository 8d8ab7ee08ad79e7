#pragma once
// What the points of a space share for their bounds, worked out once: costs of ranks and of the stages of replicas, the
// devices of pipelines, times of exchanges.

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "sim/mesh/collective_times.h"
#include "strategies/hybrid/cluster/search.h"

namespace plimsoll {

class ClusterCosts {
 public:
  explicit ClusterCosts(const ClusterQuestion& question) : question_(question) {}

  /// With the first of its bounds, or in one sentence why it cannot be.
  std::variant<ClusterRow, std::string> bounded(const ClusterPoint&);

  /// Raises the row's bounds to the next better ones; false where there are none.
  bool tighten(ClusterRow&);

  /// Raises its bound on time to what the question's budget says of what it offloads, values or states.
  void raise_within_budget(ClusterRow&);

 private:
  struct OfRank {
    RankCosts costs;
    bool sequence = false;
  };
  using Rank = std::variant<OfRank, std::string>;

  /// What a pipeline of such replicas is planned for, and what its stages cost.
  struct OfStages {
    Problem problem;
    RankCosts costs;
  };
  using Exchanges = std::vector<ReplicaExchange>;
  using Times = std::variant<CollectiveTimes, std::string>;
  using Hosts = std::vector<DeviceHost>;

  /// Of a planner's point.
  std::variant<ClusterRow, std::string> bounded_whole(const ClusterPoint&) const;
  const Rank& rank(const ClusterPoint&);
  Rank rank_made(const ClusterPoint&) const;
  const std::vector<DeviceCosts>& devices(const ClusterPoint&, const RankCosts&);
  /// Null where there is no chain.
  const OfStages* stages(const ClusterPoint&, const OfRank&);
  std::unique_ptr<OfStages> stages_made(const ClusterPoint&, const OfRank&) const;
  /// In the order that the point's schedule makes; nothing where it makes none, or where planners say what runs in a
  /// turn.
  const std::optional<OrderBound>& by_order(const ClusterPoint&, const OfRank&);
  std::optional<OrderBound> by_order_made(const ClusterPoint&, const OfRank&);
  /// Or in one sentence why the replicas cannot exchange anything.
  std::variant<Exchanges, std::string> exchanges(const ClusterPoint&, const std::vector<DeviceCosts>&);
  std::unique_ptr<Times> times_of(const ClusterPoint&) const;
  /// Of its stages; none where nothing leaves the devices.
  const Hosts& hosts(const ClusterPoint&);
  Hosts hosts_of(std::uint32_t ranks) const;
  void bound(ClusterRow&, const RankCosts&, const std::vector<DeviceCosts>&, const Exchanges&);

  const ClusterQuestion& question_;
  using Number = std::uint32_t;
  std::map<std::tuple<Number, Number, Number, Number, const StrategyInfo*>, std::unique_ptr<Rank>> ranks_;
  std::map<std::tuple<const RankCosts*, Number, Number, PipelineShape>, std::vector<DeviceCosts>> devices_;
  std::map<ClusterPoint, std::unique_ptr<OfStages>> stages_;
  std::map<std::pair<ClusterPoint, Bytes>, std::optional<OrderBound>> by_order_;  // within so much where values leave
  std::map<std::tuple<Number, Number, Number, Number, Number>, std::unique_ptr<Times>> times_;
  std::map<Number, Hosts> hosts_;  // by ranks of a stage
};

}  // namespace plimsoll
