#pragma once
// What it takes for the network's inputs to appear on a GPU, where a trace's times hold it without saying how much.

#include "sim/core/graph.h"
#include "sim/core/platform.h"

namespace plimsoll {

/// The clock of traces whose times say what loading took.
inline constexpr const char* loads_apart =
    "from one op's end to the next one's, in place; the time of loading is stated";

/// Until 2026-11-26 our CUDA backend measured ops in place and did not tell how much of a forward's time was the copy
/// of its input from pinned memory: that of so many bytes over the way from the first device's host.
void find_loads(Graph&, const Platform&);

}  // namespace plimsoll
