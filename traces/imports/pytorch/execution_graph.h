#pragma once
// A training step out of an execution trace of PyTorch as a graph: the operators that compute, on the tensors that they
// name.

#include <filesystem>
#include <string>

#include "sim/core/graph.h"
#include "traces/imports/import_numbers.h"

namespace plimsoll {

/// `--set step=N`: which `ProfilerStep#N`; else the last, without such steps the whole file. Throws InputError.
Graph parse_execution_graph(std::string text, const std::string& file_name, ImportNumbers&);
Graph read_execution_graph(const std::filesystem::path&, ImportNumbers&);

}  // namespace plimsoll
