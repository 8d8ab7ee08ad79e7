#pragma once
// What each step of a schedule asks its device's allocator for, request by request, where the trace has measured that.

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "sim/core/allocations.h"
#include "sim/core/schedule.h"
#include "sim/model/problem.h"

namespace plimsoll {

/// In place of a block for each buffer that the step allocates and one for its workspace.
struct StepOrder {
  const AllocationOrder* order = nullptr;
  std::optional<std::uint32_t> iteration = {};  ///< of plain training, whose numbers go on from step to step
  std::optional<BufferId> takes = {};  ///< its blocks are the order's first numbers: what the forward has saved
  std::vector<std::pair<std::uint32_t, BufferId>> leaves = {};  ///< which buffer an allocation is that stays
};

struct StepOrders {
  std::vector<std::optional<StepOrder>> steps;  ///< unset: as buffers and workspace say
  std::vector<std::vector<Bytes>> pieces;       ///< by buffer: the blocks that it is made of; none: one
  std::vector<bool> is_in_orders;               ///< by buffer: only orders of plain training know its blocks
  std::vector<bool> comes_late;  ///< by buffer: optimizer states, which appear at the end of the first iteration
  std::shared_ptr<const AllocationOrder> evaluation = {};  ///< of steps of that kind, which the first iteration has not
};

// A step has an order where the buffers that it allocates, beside the network's input, are those that the order leaves,
// and where what it takes is there in the same pieces. One call of autograd for the whole backward
// (sim/measure/one_call.h) has the orders of plain training, if the trace has those. Nothing of a changed model has
// any. An evaluation has one of what its ops make, whatever the trace is.
/// Of Problem::allocations, which must outlive what is returned; without them of evaluations only.
StepOrders step_orders(const Problem&, const Schedule&);

}  // namespace plimsoll
