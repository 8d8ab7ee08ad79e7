#pragma once
// Strategies one after the other on a part of the graph: each reads the tape of the one before. For strategies that ask
// others, too.

#include <optional>
#include <span>
#include <vector>

#include "strategies/api/pass.h"

namespace plimsoll {

/// Whether all of the passes plan parts of a pipeline themselves, with what other micro-batches keep there.
bool plan_parts_themselves(std::span<const Pass>);

/// What memory strategies make of a part, one outcome a budget: of a whole model, or of a part that they plan
/// themselves (part_tapes.h has the others).
std::vector<TapeOutcome> tapes_of_passes(const PartTask&, std::span<const Pass>,
                                         std::span<const std::optional<Bytes>> budgets);

/// The same for who asks more than once, as long as the task is there: what does not depend on budgets is made once.
Asked asked_of_passes(const PartTask&, std::span<const Pass>);

TapeOutcome tape_of_passes(const PartTask&, std::span<const Pass>, std::optional<Bytes> budget);

/// Throws InputError where a pass cannot treat the problem at all.
void judge(const Problem&, std::span<const Pass>);

/// The same as tapes_of_passes, judged first.
std::vector<TapeOutcome> judged_tapes_of_passes(const PartTask&, std::span<const Pass>,
                                                std::span<const std::optional<Bytes>> budgets);

}  // namespace plimsoll
