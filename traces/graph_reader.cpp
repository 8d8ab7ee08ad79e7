// Graph traces: tensors, and the operators on them in a valid order.

#include <fmt/format.h>

#include <map>

#include "sim/io/fields.h"
#include "sim/io/one_of.h"
#include "traces/trace_parts.h"

namespace plimsoll {
namespace {

using enum Need;

struct GraphDraft {
  Graph graph;
  std::vector<std::optional<std::uint32_t>> storages;  ///< as the file numbers them; unset: the tensor's own
  bool has_ops = false;
};

struct GraphTensorDraft {
  Tensor tensor;
  std::optional<std::uint32_t> storage;
  std::size_t position = 0;
};

const Field<GraphTensorDraft, JsonCursor> graph_tensor_fields[] = {
    {"id", optional, [](GraphTensorDraft& d, JsonCursor c) { check_id(c, d.position); }},
    {"name", required, [](GraphTensorDraft& d, JsonCursor c) { d.tensor.name = c.string(); }},
    {"kind", required, [](GraphTensorDraft& d, JsonCursor c) { d.tensor.kind = one_of<TensorKind>(c); }},
    {"bytes", required, [](GraphTensorDraft& d, JsonCursor c) { d.tensor.bytes = c.bytes(); }},
    {"shape", optional, [](GraphTensorDraft& d, JsonCursor c) { d.tensor.shape = read_shape(c); }},
    {"dtype", optional, [](GraphTensorDraft& d, JsonCursor c) { d.tensor.dtype = c.string(); }},
    {"gradient_of", optional, [](GraphTensorDraft& d, JsonCursor c) { d.tensor.gradient_of = TensorId{c.index()}; }},
    {"storage", optional, [](GraphTensorDraft& d, JsonCursor c) { d.storage = c.index(); }},
};

struct OpDraft {
  Op op;
  std::size_t position = 0;
};

void read_tensor_ids(std::vector<TensorId>& ids, JsonCursor cursor) {
  cursor.array([&](JsonCursor element) { ids.push_back({element.index()}); });
}

void read_attributes(OpDraft& d, JsonCursor cursor) {
  cursor.object([&](std::string_view key, JsonCursor value) {
    d.op.attributes.emplace_back(key, value.is_word() ? value.string() : value.compact());
  });
}

const Field<Alternative, JsonCursor> alternative_fields[] = {
    {"name", required, [](Alternative& a, JsonCursor c) { a.name = c.string(); }},
    {"time_s", optional, [](Alternative& a, JsonCursor c) { a.duration = c.seconds(); }},
    {"flops", optional, [](Alternative& a, JsonCursor c) { a.flops = c.flops(); }},
    {"bytes", optional, [](Alternative& a, JsonCursor c) { a.bytes_moved = c.bytes(); }},
    {"workspace_bytes", optional, [](Alternative& a, JsonCursor c) { a.workspace = c.bytes(); }},
};

void read_alternatives(OpDraft& d, JsonCursor cursor) {
  cursor.array([&](JsonCursor element) { read_fields(element, alternative_fields, d.op.alternatives.emplace_back()); });
}

const Field<OpDraft, JsonCursor> op_fields[] = {
    {"id", optional, [](OpDraft& d, JsonCursor c) { check_id(c, d.position); }},
    {"name", required, [](OpDraft& d, JsonCursor c) { d.op.name = c.string(); }},
    {"kind", optional, [](OpDraft& d, JsonCursor c) { d.op.kind = c.string(); }},
    {"phase", required, [](OpDraft& d, JsonCursor c) { d.op.phase = one_of<Phase>(c); }},
    {"stage", optional, [](OpDraft& d, JsonCursor c) { d.op.stage = c.index(); }},
    {"time_s", optional, [](OpDraft& d, JsonCursor c) { d.op.duration = c.seconds(); }},
    {"flops", optional, [](OpDraft& d, JsonCursor c) { d.op.flops = c.flops(); }},
    {"bytes", optional, [](OpDraft& d, JsonCursor c) { d.op.bytes_moved = c.bytes(); }},
    {"kernels", optional, [](OpDraft& d, JsonCursor c) { d.op.kernels = c.number(); }},
    {"launches", optional, [](OpDraft& d, JsonCursor c) { d.op.launches = above_zero(c); }},
    {"traffic", optional, [](OpDraft& d, JsonCursor c) { d.op.traffic = above_zero(c); }},
    {"workspace_bytes", optional, [](OpDraft& d, JsonCursor c) { d.op.workspace = c.bytes(); }},
    {"inputs", optional, [](OpDraft& d, JsonCursor c) { read_tensor_ids(d.op.inputs, c); }},
    {"outputs", optional, [](OpDraft& d, JsonCursor c) { read_tensor_ids(d.op.outputs, c); }},
    {"saved", optional, [](OpDraft& d, JsonCursor c) { read_tensor_ids(d.op.saved, c); }},
    {"mutates", optional, [](OpDraft& d, JsonCursor c) { read_tensor_ids(d.op.mutates, c); }},
    {"attributes", optional, read_attributes},
    {"nograd_time_s", optional, [](OpDraft& d, JsonCursor c) { d.op.nograd_duration = c.seconds(); }},
    {"load_s", optional, [](OpDraft& d, JsonCursor c) { d.op.load = c.seconds(); }},
    {"nograd_workspace_bytes", optional, [](OpDraft& d, JsonCursor c) { d.op.nograd_workspace = c.bytes(); }},
    {"accumulate_workspace_bytes", optional, [](OpDraft& d, JsonCursor c) { d.op.accumulate_workspace = c.bytes(); }},
    {"alternatives", optional, read_alternatives},
    {"recomputable", optional, [](OpDraft& d, JsonCursor c) { d.op.recomputable = c.boolean(); }},
};

void read_graph_tensors(GraphDraft& draft, JsonCursor cursor) {
  cursor.array([&](JsonCursor element) {
    GraphTensorDraft tensor{{}, {}, draft.graph.tensors.size()};
    read_fields(element, graph_tensor_fields, tensor);
    draft.graph.tensors.push_back(std::move(tensor.tensor));
    draft.storages.push_back(tensor.storage);
  });
}

void read_ops(GraphDraft& draft, JsonCursor cursor) {
  cursor.array([&](JsonCursor element) {
    OpDraft op{{}, draft.graph.ops.size()};
    read_fields(element, op_fields, op);
    draft.graph.ops.push_back(std::move(op.op));
  });
}

void read_colocate(GraphDraft& draft, JsonCursor cursor) {
  cursor.array([&](JsonCursor group) {
    std::vector<OpId>& ops = draft.graph.colocate.emplace_back();
    group.array([&](JsonCursor element) { ops.push_back({element.index()}); });
  });
}

const Field<GraphDraft, JsonCursor> own_graph_fields[] = {
    schema_field<GraphDraft, JsonCursor>,
    {"format", required, [](GraphDraft&, JsonCursor) {}},
    {"kind", required, [](GraphDraft&, JsonCursor) {}},
    {"name", required, [](GraphDraft& d, JsonCursor c) { d.graph.name = c.string(); }},
    {"source", optional, [](GraphDraft& d, JsonCursor c) { d.graph.source = read_source(c); }},
    {"tensors", required, read_graph_tensors},
    {"ops", required, read_ops},
    {"colocate", optional, read_colocate},
};

/// Storages numbered 0, 1, ... without holes: as the file does where it does so for all, else in order of appearance.
void number_storages(GraphDraft& draft) {
  Graph& graph = draft.graph;
  std::vector<bool> used(graph.tensors.size(), false);
  bool dense = true;
  std::uint32_t count = 0;
  for (const std::optional<std::uint32_t>& storage : draft.storages) {
    dense = dense && storage && *storage < used.size();
    if (!dense) break;
    if (!used[*storage]) ++count;
    used[*storage] = true;
  }
  for (std::uint32_t s = 0; dense && s < count; ++s) dense = used[s];

  std::map<std::uint32_t, std::uint32_t> number;
  std::uint32_t next = 0;
  for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
    const std::optional<std::uint32_t> storage = draft.storages[t];
    if (dense) {
      graph.tensors[t].storage = {*storage};
      continue;
    }
    const bool is_new = !storage || number.try_emplace(*storage, next).second;
    graph.tensors[t].storage = {is_new ? next++ : number.at(*storage)};
  }
  graph.storages = dense ? count : next;
}

}  // namespace

Graph read_graph(JsonDocument& document) {
  GraphDraft draft;
  document.read([&](JsonCursor root) { read_fields(root, own_graph_fields, draft); });
  number_storages(draft);
  check_graph(document, draft.graph);
  document.throw_if_any();
  return std::move(draft.graph);
}

}  // namespace plimsoll
