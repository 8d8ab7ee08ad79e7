#pragma once
// The points among which `cluster` chooses: each is a pass pipeline of strategies that exist, for a size of
// micro-batch.

#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "strategies/api/pass.h"
#include "strategies/hybrid/cluster/cluster_options.h"

namespace plimsoll {

/// How the parts of a pipeline lie on its devices: one each, in turns, or down and up them as a V.
enum class PipelineShape : std::uint8_t { line, turns, v };

struct ClusterSchedule {
  std::string_view name;
  const StrategyInfo* strategy;  ///< null: no pipeline
  PipelineShape shape = PipelineShape::line;
  bool splits_backward = false;
  bool is_usual = true;  ///< auto asks for it
};
std::span<const ClusterSchedule> cluster_schedules();

/// What saves memory within a stage: a transform before everything, or a strategy behind it.
struct ClusterSaver {
  std::string_view name;
  const StrategyInfo* transform;
  const StrategyInfo* behind;
  bool is_usual = true;
};
std::span<const ClusterSaver> cluster_savers();

/// What follows the saver: the first of a table is nothing.
struct ClusterPass {
  std::string_view name;
  const StrategyInfo* strategy;
  bool is_usual = true;
};
std::span<const ClusterPass> cluster_compressions();
std::span<const ClusterPass> cluster_offloads();
std::span<const ClusterPass> cluster_updates();

/// Searches of whole plans on all devices, in place of everything but a saver.
struct ClusterPlanner {
  std::string_view name;
  const StrategyInfo* strategy;  ///< null: none
  bool splits_ops = false;       ///< devices share out single operators
  bool is_usual = true;
};
std::span<const ClusterPlanner> cluster_planners();

struct ClusterPoint {
  std::uint32_t tensor = 1;    ///< devices that share out the operators of a stage
  std::uint32_t context = 1;   ///< times so many, which share out the positions of a sequence
  std::uint32_t stages = 1;    ///< devices in a row
  std::uint32_t replicas = 1;  ///< each with its own micro-batches
  std::uint32_t experts = 1;   ///< so many of which share out the experts of mixtures
  std::uint32_t copies = 1;    ///< of what replicas share out with zero 2 and 3 (HSDP)
  std::uint32_t zero = 0;      ///< what replicas share out: 0 nothing to 3 states, gradients and parameters
  std::uint32_t samples = 1;   ///< of a micro-batch
  std::uint32_t chunks = 1;    ///< parts of the model on a device
  std::uint8_t schedule = 0;   ///< index of cluster_schedules(); 0: no pipeline
  std::uint8_t saver = 0;      ///< index of cluster_savers(); 0: none
  std::uint8_t compression = 0, offload = 0, updates = 0;  ///< likewise
  std::uint8_t planner = 0;  ///< index of cluster_planners(); 0: the numbers above are the plan

  /// Devices of a stage of one replica.
  std::uint32_t width() const { return tensor * context; }
  std::uint32_t devices() const { return width() * stages * replicas; }
  /// Replicas that exchange all parameters of a stage: groups of those that share out experts.
  std::uint32_t alike() const { return replicas / experts; }
  /// Of these, those that share something out among them.
  std::uint32_t sharers() const { return alike() / copies; }
  const ClusterSchedule& way() const { return cluster_schedules()[schedule]; }
  const ClusterSaver& saving() const { return cluster_savers()[saver]; }
  const ClusterPass& compressing() const { return cluster_compressions()[compression]; }
  const ClusterPass& offloading() const { return cluster_offloads()[offload]; }
  const ClusterPass& updating() const { return cluster_updates()[updates]; }
  const ClusterPlanner& planning() const { return cluster_planners()[planner]; }
  /// Whether a rank runs its ops one after the other: without a pipeline, and what plans by stages.
  bool runs_by_ops() const;
  /// Whether optimizer states stay on the device.
  bool keeps_states() const;
  /// Whether the saver recomputes the same within whatever memory.
  bool has_fixed_saver() const;
  /// Whether updates come in one order, with or without offloading. Where backwards are split only those behind them
  /// do: zb_h1|offload_fractional|backward_updates may be faster than the same without offloading.
  bool has_fixed_updates() const;
  /// Whether values leave as one search also chooses what is recomputed.
  bool offloads_by_stages() const { return offload > 0 && offloading().strategy->chains_only; }
  friend auto operator<=>(const ClusterPoint&, const ClusterPoint&) = default;
};

/// What the numbers of a point come from.
struct ClusterExtent {
  std::uint32_t devices = 1;
  std::uint32_t in_node = 1, in_largest_node = 1;  ///< fewest and most devices of a node
  std::uint32_t usual_devices = 1;                 ///< divisors of which auto takes as stages, where there are many
  std::uint32_t batch = 1;                         ///< samples of an iteration, all replicas together
  std::uint32_t given_samples = 1;                 ///< of a micro-batch of the trace
  bool has_sizes = false;                          ///< whether a micro-batch may have another number of samples
  bool has_updates = false;                        ///< whether there are states to share out
  bool has_operators = false;                      ///< whether devices may share these and positions out
  std::size_t model_stages = 1;                    ///< of the model's chain; 1: it has none
  std::uint32_t layers = 0;                        ///< of the model, where the trace is a formula that says so; else 0
  std::uint32_t positions = 0;                     ///< of a sequence, likewise
  bool has_alike_devices = true;                   ///< else the first one's costs are only a guess at what others take

  /// Micro-batches of each replica.
  std::uint32_t micro_batches(const ClusterPoint& point) const { return batch / (point.replicas * point.samples); }
};

struct ClusterSpace {
  std::vector<ClusterPoint> points;  ///< ascending
  std::string empty_because = {};    ///< where there is none: which option leaves none, and why
};

/// All points of the options. Devices may be left idle.
ClusterSpace cluster_space(const ClusterExtent&, const ClusterOptions&);

/// The point as passes, and their text. `sequence`: also the positions between blocks are shared out.
struct ComposedPoint {
  std::string text;
  std::vector<Pass> passes;
};
ComposedPoint composed(const ClusterPoint&, bool sequence);

/// Of it what makes the graph of a rank: nothing of replicas or stages.
ComposedPoint composed_rank(const ClusterPoint&, bool sequence);

/// Of it what makes the graph of a rank among replicas: nothing of stages.
ComposedPoint composed_replica(const ClusterPoint&, bool sequence);

/// Of it what makes the chain that its pipeline cuts, that pipeline last.
ComposedPoint composed_stages(const ClusterPoint&, bool sequence);

/// Which option asks for what a pass has refused (`context: ...`), and for how much: context=3; else nothing.
std::optional<std::string> refused_option(const ClusterOptions&, std::string_view why);

}  // namespace plimsoll
