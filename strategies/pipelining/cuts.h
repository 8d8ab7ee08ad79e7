#pragma once
// Where a chain is cut into parts for a pipeline.

#include <cstddef>
#include <string_view>
#include <vector>

#include "sim/core/chain.h"

namespace plimsoll {

/// uniform: as many stages in each part, the first ones one more where that does not go up. balanced: the longest part
/// (forwards and backwards) is as short as can be; of those cuts, the one whose first part is longest, and so on.
enum class CutRule { uniform, balanced };

/// The first stage of each part, ascending, beginning with 0. There are at least as many stages as parts.
std::vector<std::size_t> cut_stages(const Chain&, std::size_t parts, CutRule);

}  // namespace plimsoll
