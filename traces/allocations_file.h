#pragma once
// The `allocations` of a chain trace.

#include "sim/core/allocations.h"
#include "sim/core/chain.h"
#include "sim/io/json/json.h"
#include "sim/io/json/json_cursor.h"

namespace plimsoll {

ChainAllocations read_allocations(JsonCursor);

/// Complains about what contradicts itself or the chain.
void check_allocations(JsonDocument&, const Chain&, const ChainAllocations&);

/// One stage's, and those of plain training.
Json to_json(const StageAllocations&);
Json to_json(const PlainAllocations&);

}  // namespace plimsoll
