#pragma once
// The judge of versions: which value of a parameter a step must read where updates come within an iteration, by what
// the header declares and what the steps before have done. Rules: wrong_value for a version that is too old, repeated
// for an update made twice, malformed for a header that declares what is not so.

#include <map>
#include <tuple>
#include <utility>

#include "sim/judge/judge.h"

namespace plimsoll {

/// What a header says of updates, in itself.
void judge_header_updates(const Schedule&, Findings&);

class VersionJudge final : public Judge {
 public:
  using Judge::Judge;
  /// The version of a tensor that the step must read; what it is may depend on what the schedule has done before.
  std::uint32_t needed(StepId s, TensorId t);
  /// A step has filled a parameter or a state.
  void note_updated(StepId s, BufferId b);
  /// The header declares as many updates that are not read as there are at most.
  void end() override;

 private:
  bool hands_out(StepId s) const;

  std::map<std::pair<StorageId, std::uint32_t>, std::uint32_t> newest_;                ///< (.., replica): version
  std::map<std::tuple<StorageId, std::uint32_t, std::uint32_t>, std::uint32_t> read_;  ///< (.., micro-batch, replica)
  std::uint32_t most_stale_ = 0;
};

}  // namespace plimsoll
