#pragma once
// A lower bound on the time of every schedule that runs a tape's computes in their order and moves values to the host
// and back, in pieces of any size (the fluid relaxation).
//
// At position p at least d(p) = memory(p) - budget bytes are away. Of these, values made by position q bring a(q, p) at
// most, so that the others left after q had ended:
//   start(p) >= end(q) + (d(p) - a(q, p)) / bandwidth out, for all q < p.
// Backwards in time the same holds for the way back. The makespan is at least what both give at any p.
// Source: the fractional relaxation of Beaumont, Eyraud-Dubois, Shilova, "Optimal GPU-CPU offloading strategies for
// deep neural network training", Euro-Par 2020; this form of the bound is own.

#include <optional>
#include <span>
#include <vector>

#include "strategies/compose/parts/passes.h"
#include "strategies/offloading/activations/offload_model.h"

namespace plimsoll {

/// Of one micro-batch; nothing where no offloading is enough.
std::optional<Seconds> fluid_bound(const OffloadModel&, Bytes budget);

/// By position: the least time from its begin to the end; 0 behind the last one.
std::vector<Seconds> fluid_rests(const OffloadModel&, Bytes budget);

/// Durations of all updates.
Seconds updates(const PartTask&);

/// Outcomes with their gap: the relative distance from the bound. None with several micro-batches, of which the
/// first needs less memory, and none where the tape is too long for the bound's tables.
std::vector<TapeOutcome> with_fluid_gaps(const PartTask&, const OffloadModel&,
                                         std::span<const std::optional<Bytes>> budgets, std::vector<TapeOutcome>);

// Plans of other strategies, for strategies that are never to be worse than those.

/// The tapes of a strategy, or of several one after the other, at these budgets; also at the least one that they can
/// keep, where that is more than one of them.
std::vector<PlannedTape> known_tapes(std::span<const Pass>, const PartTask&,
                                     std::span<const std::optional<Bytes>> budgets);

/// The same of one strategy that reads the tape `before`.
std::vector<PlannedTape> known_tapes(const Pass&, const PartTask&, std::span<const std::optional<Bytes>> budgets,
                                     const Tape& before);

}  // namespace plimsoll
