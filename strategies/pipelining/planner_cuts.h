#pragma once
// Where published planners cut a chain for a pipeline of one part a device, without replicas.

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "sim/core/problem.h"

namespace plimsoll {

/// pipedream, ideals, piper, alpa, madpipe.
bool is_planner_cut(std::string_view cut);

/// The first stage of each part, part g on device g. Throws InputError where devices have several parts or share them,
/// or the planner leaves devices without a stage.
std::vector<std::size_t> planner_cut(const Problem&, std::string_view planner, std::string_view strategy,
                                     std::span<const std::uint32_t> rank_of);

}  // namespace plimsoll
