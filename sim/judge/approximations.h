#pragma once
// The judge of approximations: what a lossy codec leaves of a value, and all that is computed from it, is marked as
// one, and nothing else is. Rule: lossy.

#include <set>
#include <vector>

#include "sim/judge/judge.h"

namespace plimsoll {

class ApproximationJudge final : public Judge {
 public:
  explicit ApproximationJudge(Walk& walk) : Judge(walk), was_approximate_(walk.schedule.buffers.size(), false) {}
  /// A step has filled a buffer with one.
  void approximated(StepId s, BufferId b);
  void runs_op(StepId s) override;
  /// Marks and list say no more than what is so.
  void end() override;

 private:
  std::vector<bool> was_approximate_;  ///< by buffer: at any time
  std::set<TensorId> approximated_;    ///< parameter gradients
};

}  // namespace plimsoll
