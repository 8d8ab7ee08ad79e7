#pragma once
// What plain training takes on a placement's parts, by the event engine with the links that they share.

#include <vector>

#include "sim/core/partition.h"
#include "sim/model/problem.h"

namespace plimsoll {

struct PlainRun {
  Seconds makespan;
  std::vector<Bytes> peaks;  ///< by device
};

/// Throws InputError where the platform lacks a route.
PlainRun plain_run(const Problem&, const Partition&);

}  // namespace plimsoll
