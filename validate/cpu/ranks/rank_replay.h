#pragma once
// A schedule in which one device stands for all ranks of a mesh, run by all of them: each on its shares, in threads and
// memories of its own.

#include <memory>
#include <variant>

#include "validate/backend.h"
#include "validate/cpu/block_pool.h"

namespace plimsoll {

/// The network as the ranks of the problem's mesh run it, or why they cannot. A run hands back the dates and peaks of
/// the first rank, and parameters and states put together from all: ranks that have the same must have the same bits.
std::variant<std::unique_ptr<RunnableNetwork>, ReplayFailure> network_on_ranks(Network, const Problem&, BlockPool&);

}  // namespace plimsoll
