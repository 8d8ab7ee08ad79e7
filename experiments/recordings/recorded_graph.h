#pragma once
// A step that PyTorch's profiler has recorded on a GPU (Kineto, `record_shapes=True`) as a graph with measured times.

#include <filesystem>

#include "sim/core/graph.h"
#include "traces/imports/import_numbers.h"

namespace plimsoll {

/// `--set step=N`: which `ProfilerStep#N`; else the last whole one. Throws InputError.
Graph read_recorded_graph(const std::filesystem::path&, ImportNumbers&);

}  // namespace plimsoll
