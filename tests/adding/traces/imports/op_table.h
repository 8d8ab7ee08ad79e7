#pragma once
// Tables of ops in JSON: `[{"name": "a", "ms": 1, "bytes": 4096}, {"name": "b", "ms": 3, "bytes": 64, "reads": [0]}]`.

#include <filesystem>

#include "sim/core/graph.h"

namespace plimsoll {

/// Throws InputError, located, where the file is none.
Graph read_op_table(const std::filesystem::path&);

}  // namespace plimsoll
