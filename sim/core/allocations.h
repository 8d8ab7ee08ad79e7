#pragma once
// What a measured chain asked its allocator for, in order, by stage and pass. Field by field in traces/chain.md.

#include <cstdint>
#include <optional>
#include <vector>

namespace plimsoll {

/// In order; n > 0: n bytes are allocated, -k: allocation number k is freed. Allocations are numbered from 1.
using AllocationOrder = std::vector<std::int64_t>;

/// An allocation that outlives its pass.
struct LastingAllocation {
  std::uint32_t number = 0;
  std::uint32_t index = 0;  ///< of a tensor or a parameter of the chain

  friend bool operator==(const LastingAllocation&, const LastingAllocation&) = default;
};

/// One pass of one stage. What is alive at its end is in one of the three lists.
struct PassAllocations {
  AllocationOrder order;  ///< of a backward the first numbers are those of what the forward has saved, as listed there
  std::vector<std::uint32_t> saved;           ///< of a forward: what its backward frees
  std::vector<LastingAllocation> tensors;     ///< of a forward: tensors that it makes; of a backward: their gradients
  std::vector<LastingAllocation> parameters;  ///< of a backward: parameters whose gradients it makes

  friend bool operator==(const PassAllocations&, const PassAllocations&) = default;
};

struct StageAllocations {
  PassAllocations forward, forward_nograd;
  PassAllocations backward, backward_accumulate;  ///< the second where gradients of parameters exist already

  friend bool operator==(const StageAllocations&, const StageAllocations&) = default;
};

/// An iteration of plain training, in which one call of autograd is the backward: an order for the forward of each
/// stage, then one for the backward of each, from the last stage to the first. Numbers go on from one to the next.
struct PlainAllocations {
  std::vector<AllocationOrder> fresh, accumulate;  ///< the second where gradients of parameters exist already

  friend bool operator==(const PlainAllocations&, const PlainAllocations&) = default;
};

struct ChainAllocations {
  std::vector<StageAllocations> stages;
  std::optional<PlainAllocations> plain = {};

  friend bool operator==(const ChainAllocations&, const ChainAllocations&) = default;
};

}  // namespace plimsoll
