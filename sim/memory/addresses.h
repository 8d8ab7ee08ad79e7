#pragma once
// Where the buffers and workspaces of devices lie, planned with a schedule: an offset each in one block a device. They
// hold by any timing that the schedule's waits allow, so a replay may use a block as it is.
//
// Two of them may share bytes only if the one is free before the other begins, by the order of events. Lives are taken
// as intervals between the starts and finishes of the device's first compute stream: from the last of these that
// surely comes before, to the first that surely comes after. So what copies hold may be counted longer than it needs.
//
// Parts of a value that a step takes together lie as in the value, so that a kernel finds it in one piece; unless the
// same part may be there twice.

#include <optional>
#include <string>
#include <vector>

#include "sim/core/platform.h"
#include "sim/core/schedule.h"
#include "sim/memory/offset_assignment.h"

namespace plimsoll {

/// One device's memory.
struct AddressBlock {
  MemoryId memory;
  Bytes size;
  Bytes load;  ///< most bytes whose lives overlap, each rounded up: no block is smaller
  bool is_optimal = false;
};

struct Addresses {
  std::vector<AddressBlock> blocks;                ///< by device
  std::vector<std::optional<Bytes>> of_buffer;     ///< within its device's block; unset: in no device, or empty
  std::vector<std::optional<Bytes>> of_workspace;  ///< by step
};

/// Offsets are multiples of what PyTorch's allocator rounds to, 512 B.
Addresses plan_addresses(const Schedule&, const Platform&, OffsetSearch);

/// Of a buffer, or else of a step's workspace.
struct WrongAddress {
  std::optional<BufferId> buffer;
  std::optional<StepId> step;
  std::string what;  ///< one sentence
};

/// The first that has no address in a block's memory, lies outside the block, or shares bytes with another that may be
/// live at once; judged by the order of steps (sim/judge/happens_before.h), apart from how addresses were planned.
std::optional<WrongAddress> wrong_address(const Schedule&, const Platform&, const Addresses&);

}  // namespace plimsoll
