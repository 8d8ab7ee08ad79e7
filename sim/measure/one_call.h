#pragma once
// Whether a schedule is plain training of a chain.

#include "sim/core/schedule.h"
#include "sim/model/problem.h"

namespace plimsoll {

/// Whether workspaces and times are those of one call of autograd for the whole backward, and nothing runs twice or is
/// copied.
bool is_one_call(const Problem&, const Schedule&);

}  // namespace plimsoll
