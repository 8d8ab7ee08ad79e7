#pragma once
// What tests of graphs by formula count in them.

#include <cstdint>
#include <set>
#include <string>
#include <variant>

#include "sim/core/graph.h"
#include "traces/models/synthetic.h"

namespace plimsoll {

inline Graph formula_graph_of(const std::string& reference) {
  return std::get<Graph>(synthetic_model(reference));
}

inline std::int64_t parameter_bytes(const Graph& graph) {
  std::int64_t bytes = 0;
  for (const Tensor& tensor : graph.tensors) bytes += tensor.kind == TensorKind::parameter ? tensor.bytes.count : 0;
  return bytes;
}

/// Bytes of values that forwards make and backwards read, of ops whose names begin so; all without a name.
inline std::int64_t kept_bytes(const Graph& graph, const std::string& name = {}) {
  std::set<std::uint32_t> read;
  for (const Op& op : graph.ops) {
    if (op.phase != Phase::backward) continue;
    for (const TensorId input : op.inputs) read.insert(input.index);
  }
  std::int64_t bytes = 0;
  for (const Op& op : graph.ops) {
    if (op.phase != Phase::forward || !op.name.starts_with(name)) continue;
    for (const TensorId output : op.outputs) bytes += read.contains(output.index) ? graph[output].bytes.count : 0;
  }
  return bytes;
}

}  // namespace plimsoll
