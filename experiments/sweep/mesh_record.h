#pragma once
// How ranks of a mesh share out a model, as a sweep keeps it for the picture of its report: operators by axis, how
// their results lie, and what ranks exchange.

#include "sim/io/json/json.h"
#include "sim/model/problem.h"

namespace plimsoll {

/// `axes`: name, `ranks` and whether each has its `own_micro_batches`. `operators`, in the order of their forwards,
/// those that are alike but for numbers in their names as one, `count`ed: name, kind, and by axis of `cuts` the
/// dimension that is shared out (null: none) and of `results` whether a rank's first output is `whole`, `cut` or a
/// `sum`'s part (null: unknown). `exchanges` of a rank in an iteration, all stages together, by kind, `axes` and phase:
/// `count`, `bytes` of the whole values, `seconds`, and whether they run `beside` the computation. The problem must
/// have a mesh.
Json mesh_record(const Problem&);

}  // namespace plimsoll
