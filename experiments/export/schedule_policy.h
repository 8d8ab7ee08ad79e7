#pragma once
// A schedule as a policy by ops, for frameworks that are told which ops run again and which values wait on the host,
// and that find the order by themselves.

#include <string>
#include <variant>

#include "sim/core/schedule.h"
#include "sim/model/problem.h"
#include "strategies/offloading/frameworks/op_policy.h"

namespace plimsoll {

/// Of a schedule of the problem; or in one sentence what of it no policy says: an op that runs a third time, a value
/// that waits on the host and is made again, or in pieces, packed forms, several devices.
std::variant<OpPolicy, std::string> policy_of(const Problem&, const Schedule&);

}  // namespace plimsoll
