#pragma once
// The judge of lives and orders: a buffer is used between its allocation and its free, and whoever uses, overwrites or
// frees it waits, whatever the durations, for those who must have finished. Rules: not_resident, not_ordered,
// freed_twice, and malformed for two lives.

#include "sim/judge/judge.h"

namespace plimsoll {

class ResidencyJudge final : public Judge {
 public:
  using Judge::Judge;
  void is_resident(BufferId b) override;
  void uses(StepId s, BufferId b, std::string_view verb) override;
  void overwrites(StepId s, BufferId b) override;
  void allocates(StepId s, BufferId b) override;
  void frees(StepId s, BufferId b) override;
};

}  // namespace plimsoll
