#pragma once
// Where the buffers and workspaces of devices lie, planned with a schedule: an offset each in one block a device. They
// hold by any timing that the schedule's waits allow, so a replay may use a block as it is.
//
// Two of them may share bytes only if the one is free before the other begins, by the order of events. Lives are taken
// as intervals between the starts and finishes of the device's first compute stream: from the last of these that
// surely comes before, to the first that surely comes after. So what copies hold may be counted longer than it needs.

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

/// In one sentence two that share bytes although both may be live at once, or one that has no place in its block;
/// judged by the order of steps (sim/judge/happens_before.h), apart from how addresses were planned.
std::optional<std::string> wrong_address(const Schedule&, const Platform&, const Addresses&);

}  // namespace plimsoll
