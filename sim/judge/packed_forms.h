#pragma once
// Packed forms: their sizes and costs, counted a second time from shape and dtype.

#include "sim/judge/findings.h"
#include "sim/judge/walk.h"

namespace plimsoll {

/// The header's codecs, the sizes of packed buffers, and the list of approximations in itself.
void judge_codecs(const Schedule&, const Graph&, Findings&);

/// Whether it leaves an approximation of the value.
bool is_approximate(const Codec&);
/// Whether its packed form only says enough for some ops, and unpacks to nothing.
bool restores_nothing(const Codec&);

/// What packing or unpacking states of itself; the step reads `from` and fills `to`.
void judge_cost_of_packing(const Walk&, StepId, BufferId from, BufferId to);

}  // namespace plimsoll
