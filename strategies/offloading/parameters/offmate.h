#pragma once
// A lower bound on the time of every schedule that runs a tape's computes in their order and places each parameter, its
// gradient and states as offmate does, in fractions of any size (a linear program).
//
// The iteration is cut into slots: before each compute, during it, and after the last one. In each slot at most
// bandwidth x duration bytes come in, and as many leave, and the host updates for as long. Of the parameters of a group
// a fraction r is at home on the device, d <= r is updated there; 1 - r comes in before each use, but for what stays
// from the use before, 1 - d of the gradient leaves after it is made, is updated on the host, and r - d comes back
// after the last compute. While a compute runs, what has come in, has not left and what the tape itself holds fits the
// budget.
// Source: the continuous program of OffMate (see offmate.cpp) with its own slots, durations and order; this form is
// own.

#include <memory>
#include <optional>

#include "strategies/api/strategy.h"

namespace plimsoll {

class OffmateBound {
 public:
  /// Of one micro-batch and up to some thousand (groups x computes); otherwise there is none.
  OffmateBound(const PartTask&, const Tape&, bool overlaps_backward);
  ~OffmateBound();
  OffmateBound(const OffmateBound&) = delete;
  OffmateBound& operator=(const OffmateBound&) = delete;

  /// The least time within the budget; nothing where it is not known.
  std::optional<Seconds> least(std::optional<Bytes> budget) const;

  /// By which share of itself a makespan may be shortened at the most.
  std::optional<double> gap(std::optional<Bytes> budget, Seconds makespan) const;

 private:
  struct Program;
  std::unique_ptr<Program> program_;
};

}  // namespace plimsoll
