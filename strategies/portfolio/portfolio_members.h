#pragma once
// Which strategies a portfolio asks, as pass pipelines.

#include <cstdint>
#include <string>
#include <vector>

#include "strategies/compose/parts/passes.h"

namespace plimsoll {

/// Who runs the plans. PyTorch frees whole values only, and its optimizer keeps and updates parameters.
enum class MembersFor { any, pytorch };

struct Member {
  std::string spec;          ///< the names, as on the command line
  std::vector<Pass> passes;  ///< none: left out
  std::string reason;        ///< why it is left out
  bool last_resort = false;  ///< asked only where no other has a plan: it takes long on so large a graph
};

/// Too large for what tries many plans of the whole: compositions and local moves.
bool is_large_graph(bool chain, std::size_t size, std::int64_t effort);

/// Every registered strategy that leaves the problem as it is, and compositions; limits by the clock are replaced by
/// limits in nodes and states. `size`: stages of a chain, else ops.
std::vector<Member> portfolio_members(bool chain, std::size_t size, std::int64_t effort,
                                      MembersFor target = MembersFor::any);

}  // namespace plimsoll
