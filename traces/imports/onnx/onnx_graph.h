#pragma once
// An ONNX model as the graph of a training iteration: shapes inferred, the backward derived by rule.

#include <filesystem>
#include <string>

#include "sim/core/graph.h"
#include "traces/imports/import_numbers.h"

namespace plimsoll {

/// `numbers` give the axes that have names instead of sizes.
Graph parse_onnx(const std::string& bytes, const std::string& file_name, ImportNumbers& numbers);
Graph read_onnx(const std::filesystem::path&, ImportNumbers& numbers);

}  // namespace plimsoll
