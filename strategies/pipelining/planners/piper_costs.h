#pragma once
// What Piper's stages cost: the least time of a set of layers within the memory, by ways to run each of them.

#include <limits>
#include <unordered_map>
#include <vector>

#include "strategies/pipelining/planners/piper.h"

namespace plimsoll {

/// A set of nodes that may be a stage.
using StageNodes = std::vector<std::uint32_t>;

struct PiperChoice {
  double seconds = std::numeric_limits<double>::infinity();  ///< compute, and bytes of options over the border
  double bytes = 0;
  std::vector<std::uint32_t> options;  ///< of each node of the set
};

class PiperCosts {
 public:
  explicit PiperCosts(const PiperProblem&);

  /// Degrees of tensor parallelism that some option has, ascending.
  const std::vector<std::uint32_t>& degrees() const { return degrees_; }

  /// The options of one degree with which `in_flight` micro-batches fit: the fastest of each node, then those that add
  /// the least time for the bytes they save, until all fit; at the end what was not needed is taken back. Not always
  /// the best: it is a knapsack.
  PiperChoice choice(const StageNodes&, std::uint32_t degree, std::uint32_t in_flight) const;

  /// Seconds that the border's edges take, both ways.
  double border(const StageNodes&) const;
  double parameters(const StageNodes&, std::uint32_t degree) const;

  /// Of a stage: what choice() and border() take, by replicas, and its share of the gradients' exchange.
  double of_stage(double seconds, double border, double parameters, std::uint32_t replicas) const;

 private:
  std::vector<char> members(const StageNodes&) const;

  const PiperProblem& problem_;
  std::vector<std::uint32_t> degrees_;
  std::vector<std::vector<std::uint32_t>> edges_;  ///< of each node
};

}  // namespace plimsoll
