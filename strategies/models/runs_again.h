#pragma once
// Which ops may run a second time.

#include <optional>
#include <string>
#include <vector>

#include "sim/core/graph.h"

namespace plimsoll {

/// By tensor: whether an op overwrites it, so that it is not there any more when the backward runs.
std::vector<bool> overwritten_tensors(const Graph&);

/// In one sentence why the op cannot run again when the backward runs; nothing where it can.
std::optional<std::string> why_not_again(const Graph&, const Op&, const std::vector<bool>& overwritten);

}  // namespace plimsoll
