#pragma once
// What the stages of a model cost one rank, for a micro-batch of one size on one width of operators: from one graph,
// for every number of replicas and devices in a row.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "sim/core/chain.h"
#include "sim/model/problem.h"
#include "strategies/hybrid/cluster/space.h"

namespace plimsoll {

struct RankStage {
  Seconds forward, backward, weight;      ///< `weight`: the part of the backward for parameters
  Seconds again;                          ///< the shorter of a forward that saves and one that does not
  Bytes inner;                            ///< that its forward leaves for its backward beside the output
  Bytes output;                           ///< 0 where no backward reads it
  Bytes gradients;                        ///< that its backward makes
  Seconds ops, backward_ops;              ///< op by op: all, and those of the backward
  std::vector<std::uint32_t> parameters;  ///< indices of RankCosts::parameters

  friend bool operator==(const RankStage&, const RankStage&) = default;
};

/// Of one rank: of what it shares out, its share.
struct RankParameter {
  Bytes bytes, states;
  Seconds update, host_update;  ///< on the device; on its host, 0 where that cannot
  bool trained = true;

  friend bool operator==(const RankParameter&, const RankParameter&) = default;
};

struct RankCosts {
  Chain chain;  ///< what pipelines cut
  std::vector<RankStage> stages;
  std::vector<RankParameter> parameters;
  Seconds ops, backward_ops;  ///< of a micro-batch op by op: all, and those of the backward

  /// The same with these times of its stages.
  RankCosts timed_as(const Chain&) const;
};

/// Of the problem of a rank, as transforms and splits leave it, with one micro-batch, or in one sentence why a model
/// has no stages.
std::variant<RankCosts, std::string> rank_costs(Problem of_rank);

/// The same of a model with so many layers, where this is that of one with few (repeated_layers.h).
std::optional<RankCosts> with_layers(const RankCosts& few, std::uint32_t layers);

/// Whether stages and parameters cost the same, one by one.
bool cost_the_same(const RankCosts&, const RankCosts&);

/// What one device of a pipeline has of these, for a micro-batch.
struct DeviceCosts {
  Seconds before;        ///< forwards of the stages before its first one
  Seconds behind;        ///< backwards of these
  Seconds behind_input;  ///< the parts of these for inputs
  Seconds forward, backward, weight;
  Seconds again;                       ///< forwards that full_recompute runs again, of its parts at least
  Seconds last_backward, last_weight;  ///< of its longest part
  Seconds updates, host_updates;       ///< whole
  Bytes parameters, gradients, states;
  Bytes trained;                         ///< of the parameters
  Bytes read_again;                      ///< of these what stages have that are neither the model's first nor its last
  Bytes least_gradients, least_trained;  ///< of its parts
  Bytes saved;                           ///< of all its parts
  Bytes least_saved;                     ///< of one of them
  Bytes inputs, least_inputs;            ///< likewise of what enters its stages behind the first of a part
  Bytes at_repeat;       ///< of the inputs of a part and what a stage of it leaves when it has run again, at most
  Bytes last_trained;    ///< of its last stage
  Seconds longest_pass;  ///< forward, or backward for inputs, of its longest part
};

/// By device, where the model is cut as pipelines cut this chain of it (cut=balanced).
std::vector<DeviceCosts> device_costs(const RankCosts&, const Chain& cut, std::uint32_t stages, std::uint32_t chunks,
                                      PipelineShape);

}  // namespace plimsoll
