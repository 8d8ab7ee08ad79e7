#include "validate/networks/graph_writing.h"

namespace plimsoll {

TensorId add_tensor(Graph& graph, std::string name, TensorKind kind, Shape shape, std::string dtype) {
  std::int64_t bytes = 4;  // fp32 and int32
  for (const std::int64_t n : shape) bytes *= n;
  graph.tensors.push_back({.name = std::move(name),
                           .kind = kind,
                           .bytes = Bytes{bytes},
                           .storage = id_at<StorageId>(graph.storages++),
                           .shape = std::move(shape),
                           .dtype = std::move(dtype)});
  return id_at<TensorId>(graph.tensors.size() - 1);
}

Op& add_op(Graph& graph, WrittenOp written) {
  return graph.ops.emplace_back(Op{.name = std::move(written.name),
                                   .kind = std::string(name_of(written.kind)),
                                   .phase = written.phase,
                                   .stage = written.stage,
                                   .duration = {},
                                   .nograd_duration = {},
                                   .flops = {},
                                   .bytes_moved = {},
                                   .workspace = {},
                                   .nograd_workspace = {},
                                   .accumulate_workspace = {},
                                   .inputs = std::move(written.inputs),
                                   .outputs = std::move(written.outputs),
                                   .saved = {},
                                   .mutates = {},
                                   .recomputable = true,
                                   .alternatives = {},
                                   .attributes = std::move(written.attributes)});
}

}  // namespace plimsoll
