#pragma once
// The lists and objects within a result.

#include "experiments/study/result_fields.h"

namespace plimsoll {

/// What fills the fullest device at its peak, by tensor kind; null where there is no schedule.
Json peak_json(const Result&);

/// Of a strategy that chooses among others: what each came to.
Json candidates_json(const Result&);

/// By device what it holds, and what the allocator takes.
Json devices_json(const Result&);

/// Values whose packed form saves nothing.
Json kept_whole_json(const Result&);

/// Of all gradients as one vector, and of each that is approximate; null where all are exact.
Json errors_json(const Result&);

/// By axis of the mesh.
Json exchanges_json(const Result&);

/// Memories that are no device's and hold something.
Json memories_json(const Result&);

/// Rates of hosts that are upper bounds only.
Json upper_bounds_json(const Result&);

}  // namespace plimsoll
