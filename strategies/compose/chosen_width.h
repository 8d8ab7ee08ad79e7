#pragma once
// How many devices share out the operators of each stage of a pipeline, where that is left open: chosen together with
// stages and replicas, since all of them are simulated.

#include <span>

#include "sim/core/decisions.h"
#include "strategies/api/pass.h"

namespace plimsoll {

/// Whether the first of these passes cuts operators among devices whose number is for what comes behind it to say: a
/// pipeline, with no replicas of a mesh between.
bool leaves_width_open(std::span<const Pass>);

/// The splits where 1, 2, 4, ... or all devices share out operators, whichever gives the fastest iteration that fits
/// the device's capacity, or else needs least. Of the time until the deadline each width has its share, and what is
/// left is not tried when it is over. Or in one sentence why there is none.
std::variant<Decisions, std::string> at_chosen_width(const Problem&, std::span<const Pass>,
                                                     std::span<const Pass> memory, const Deadline&);

}  // namespace plimsoll
