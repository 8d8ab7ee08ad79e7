#pragma once
// What a distribution of layers takes of each device, as SAPP counts it.

#include <cstdint>

#include "strategies/pipelining/planners/sapp.h"

namespace plimsoll {

/// What only the first, or the last, device has.
double sapp_end_seconds(const SappProblem&, std::uint32_t device);
double sapp_end_bytes(const SappProblem&, std::uint32_t device);

/// Whether as many micro-batches as devices pass several chunks: then the last chunk's time and the others' are added.
bool sapp_is_short(const SappProblem&);

/// Of the last chunk's forwards, what counts beside its backwards where the pipeline is short.
double sapp_share_of_forward(const SappProblem&, std::uint32_t device);

/// When an iteration of the plan ends, transfers left out: one part a device in 1F1B's order, several interleaved.
double sapp_end(const SappProblem&, const SappPlan&);

/// The plan with its bytes and the seconds that are to be least, from its layers.
SappPlan sapp_counted(const SappProblem&, SappPlan);

}  // namespace plimsoll
