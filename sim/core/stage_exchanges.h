#pragma once
// What stages of a chain exchange with the other ranks of their mesh beside their computation: parameters that are
// gathered before they run, gradients that are summed after.

#include <span>

#include "sim/core/chain.h"
#include "sim/core/units.h"

namespace plimsoll {

/// Of one stage; times are those of the links.
struct StageExchanges {
  Seconds forward_gather, backward_gather;               ///< of parameters, before it runs
  Seconds sum;                                           ///< of gradients, after its backward
  Bytes gathered_forward, gathered_backward, gradients;  ///< there while they are exchanged
};

/// To all kinds of the stage's backward.
void add_backward_workspace(Stage&, Bytes more);

/// Adds to the stages, which have room for what they exchange themselves, the time for which they wait for links, and
/// room for what their neighbours exchange meanwhile. One exchange
/// goes at a time. While a stage's forward runs, what the next one needs is gathered (behind the last one's, what its
/// backward needs); while its backward runs, what the one before needs, and the gradients of the one behind are summed.
/// What takes longer than that is waited for by the stage that follows; what the first stage's forward needs, and the
/// sum of its gradients, are waited for whole. Tapes run stages in other orders, too: their times are the same.
/// `gathers_ahead`: else every stage waits for all that it gathers.
void add_exchanges(Chain&, std::span<const StageExchanges>, bool gathers_ahead);

}  // namespace plimsoll
