#pragma once
// The most that a memory can hold by any timing that a schedule's waits allow: steps start whenever they like after
// what they wait for, and take as long as they like. Source: our own.
//
// Starts and finishes of steps are events in a partial order: those of a stream follow each other, and a start follows
// the finishes that it waits for. What has happened at an instant is a set of events that has all predecessors of its
// events, and every such set is what has happened at an instant of some timing. The peak is the largest change that
// such a set makes: a closure of greatest weight, by one smallest cut.
// Source of that: Picard, "Maximal closure of a graph and applications to combinatorial problems", 1976.

#include "sim/core/platform.h"
#include "sim/core/schedule.h"

namespace plimsoll {

/// Counted as engines count: a step's buffers and workspace from its start, its frees at its finish. The least such
/// number, unless the memory is given more than an exact cut can count (2^51 B in all): then streams are taken as if
/// none waited for another.
Bytes guaranteed_peak(const Schedule&, const Platform&, MemoryId);

}  // namespace plimsoll
