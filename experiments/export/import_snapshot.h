#pragma once
// plimsoll import memory-snapshot: which allocators reserve what a snapshot of PyTorch's holds.

#include <string>

namespace plimsoll {

/// Prints what was found, and writes it to `output` as JSON if that is not empty. `allocator`: one more to try, or
/// empty. Throws InputError.
void import_memory_snapshot(const std::string& file, const std::string& allocator, const std::string& output);

}  // namespace plimsoll
