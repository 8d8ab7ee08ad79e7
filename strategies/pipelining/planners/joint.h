#pragma once
// Cuts of a chain for a pipeline of one forward and one backward by turns, each with the micro-batches that its stages
// keep in flight, where a stage's time depends on how many these are: what they keep is not there for its own work.
// With D(s) the time that a micro-batch takes from the beginning of stage s to its end there, all stages behind and
// transfers both ways included, a stage that keeps k(s) takes one every D(s) / k(s). The period T is the longest stage,
// transfer in one direction or such turn, unless a stage keeps all micro-batches; an iteration takes D(0) + (m - 1) T.
// For one bound on T the least D of layers i.. in q stages is
//   D(i, q) = min over j, k of time(i, j, k) + transfers(j) + D(j, q - 1)   where this is at most k T, or k = m
// and the fewest k are the best ones, since time does not fall with them. The bound goes down from plan to plan.
// Source: own; the condition is that of 1F1B*, Beaumont et al. 2021, without rounding up to groups.

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace plimsoll {

struct JointProblem {
  std::uint32_t stages = 1, micro_batches = 1;
  std::vector<double> least;                  ///< of each layer: seconds below which no stage with it does it
  std::vector<double> sent, returned;         ///< over the border before each layer; of the first one nothing
  std::vector<std::uint32_t> in_flight = {};  ///< by stage, where the order has it fixed
  double precision = 0;                       ///< periods that differ by less are not told apart
  /// Of a micro-batch in layers [first, last) as a stage; unset: it does not fit.
  std::function<std::optional<double>(std::uint32_t first, std::uint32_t last, std::uint32_t stage,
                                      std::uint32_t in_flight)>
      seconds = {};
};

struct JointPlan {
  std::vector<std::uint32_t> first, in_flight;  ///< by stage
  double period = 0, latency = 0;
  double seconds = 0;  ///< of an iteration
};

/// The plans of which none is better in both period and latency, as far as they can be the fastest or within
/// `beyond` of it; the fastest first.
std::vector<JointPlan> plan_joint(const JointProblem&, double beyond = 0);

}  // namespace plimsoll
