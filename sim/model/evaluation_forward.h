#pragma once
// What an evaluation between iterations takes: a forward of the whole network that keeps nothing for a backward.

#include <optional>
#include <string>

#include "sim/core/allocations.h"
#include "sim/model/problem.h"

namespace plimsoll {

/// Why no evaluation of the graph is known; nothing where one is.
std::optional<std::string> no_evaluation(const Graph&);

/// What a forward of one batch asks the memory for beside parameters. The batch is there from its first to its last op,
/// as a loop over a loader holds it. Ops run in the order of the graph; what they make dies with its last reader, what
/// only a backward reads is not made. Bytes of what the batch reaches are in proportion to samples.
AllocationOrder evaluation_requests(const Graph&, const Evaluation&);

/// The most of that at one time.
Bytes evaluation_bytes(const Graph&, const Evaluation&);

/// What evaluations take of each iteration in the mean: the forwards of all batches, on that device. Of ops whose times
/// are re-scaled the launches do not grow with samples. An op takes no less than its host to issue it. Exchanges beside
/// the computation take time as far as all of them take longer than that. The problem has an evaluation.
Seconds evaluation_share(const Problem&, DeviceId);

}  // namespace plimsoll
