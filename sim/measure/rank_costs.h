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

namespace plimsoll {

struct RankStage {
  Seconds forward, backward, weight;      ///< `weight`: the part of the backward for parameters
  Seconds again;                          ///< the shorter of a forward that saves and one that does not
  Bytes inner;                            ///< that its forward leaves for its backward beside the output
  Bytes output;                           ///< 0 where no backward reads it
  Bytes gradients;                        ///< that its backward makes
  Seconds ops, backward_ops;              ///< op by op: all, and those of the backward
  Bytes read_and_made, made;              ///< while an op of it runs, of a micro-batch's values: at most
  std::vector<std::uint32_t> parameters;  ///< indices of RankCosts::parameters

  friend bool operator==(const RankStage&, const RankStage&) = default;
};

/// Of one rank: of what it shares out, its share.
struct RankParameter {
  Bytes bytes, states;
  Seconds update;    ///< on the device
  Bytes host_moves;  ///< over its host's processor and memory if that updates it; 0 where it cannot
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

}  // namespace plimsoll
