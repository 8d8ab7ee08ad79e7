#pragma once
// A problem in which some parameters are frozen: its graph, and for a chain the times and sizes that its stages have
// then.

#include <string>
#include <variant>
#include <vector>

#include "sim/model/problem.h"

namespace plimsoll {

/// `trained` is by tensor; only that of parameters counts. In one sentence, where it is in doubt whose a gradient is.
std::variant<Problem, std::string> with_frozen(const Problem&, const std::vector<bool>& trained);

}  // namespace plimsoll
