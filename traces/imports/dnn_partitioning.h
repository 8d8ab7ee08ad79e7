#pragma once
// Reads the graphs of dnn-partitioning, the throughput planner of Tarnawski et al.: one JSON object, described key by
// key in traces/imports.md.

#include <filesystem>
#include <string>

#include "sim/core/graph.h"
#include "traces/layer_table.h"

namespace plimsoll {

/// Throws InputError with file:line:column for what is malformed.
LayerTable read_dnn_partitioning(const std::filesystem::path&);
LayerTable parse_dnn_partitioning(std::string text, std::string file_name);

/// The same as a graph of ops: times on an accelerator, or on the host where nothing else can run the op.
Graph read_dnn_partitioning_graph(const std::filesystem::path&);
Graph parse_dnn_partitioning_graph(std::string text, std::string file_name);

}  // namespace plimsoll
