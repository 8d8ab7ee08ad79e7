#pragma once
// A problem without its first stages: what they make is read from a store instead.

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "sim/model/problem.h"

namespace plimsoll {

/// Numbers of the stages that have forwards, ascending.
std::vector<std::uint32_t> forward_stages(const Graph&);

struct WithoutPrefix {
  Problem problem;
  Bytes stored;  ///< of one micro-batch
};

/// The problem without the forwards of the stages before `first`, none of which has a backward (frozen_problem.h). What
/// they hand on becomes inputs; parameters that only they read, and an input, are gone. In one sentence, where a later
/// op overwrites what would be stored.
std::variant<WithoutPrefix, std::string> without_prefix(Problem, std::uint32_t first);

}  // namespace plimsoll
