// Traces as JSON text: one line for each stage, tensor, op and parameter, so that a person can read and compare them.

#include "sim/core/names.h"
#include "sim/io/json/json.h"
#include "sim/io/json/parsed_json.h"
#include "sim/io/text_file.h"
#include "traces/allocations_file.h"
#include "traces/trace_file.h"
#include "traces/trace_parts.h"

#include <utility>

namespace plimsoll {
namespace {

/// A note is kept as the text that was read: JSON again where it is exactly that, else a string.
Json note(const std::string& text) {
  Json value = parsed_json(text);
  const bool same = !value.is_discarded() && !value.is_string() && value.dump() == text;
  return same ? value : Json(text);
}

Json notes_of(const std::vector<std::pair<std::string, std::string>>& notes) {
  Json object = Json::object();
  for (const auto& [key, text] : notes) object[key] = note(text);
  return object;
}

Json source_json(const Source& source) {
  Json json = {{"kind", source.kind == Source::Kind::measured ? "measured" : "computed"}};
  if (!source.device.empty()) json["device"] = source.device;
  json["dtype"] = source.dtype;
  json.update(notes_of(source.notes));
  return json;
}

template <class Tag>
Json indices(const std::vector<Id<Tag>>& ids) {
  Json list = Json::array();
  for (const Id<Tag> id : ids) list.push_back(id.index);
  return list;
}

Json uses_json(const std::vector<LayerUse>& uses) {
  Json list = Json::array();
  for (const LayerUse& use : uses) list.push_back(text_of(use));
  return list;
}

Json inner_json(const InnerTensor& tensor) {
  Json json = {{"name", tensor.name}, {"bytes", tensor.bytes.count}};
  if (!tensor.shape.empty()) json["shape"] = tensor.shape;
  if (!tensor.dtype.empty()) json["dtype"] = tensor.dtype;
  json["uses"] = uses_json(tensor.uses);
  return json;
}

Json kernel_json(const StageKernel& of) {
  const GpuKernel& kernel = of.kernel;
  Json json = {{"kind", written(kernel.kind)}};
  if (!kernel.dtype.empty()) json["dtype"] = kernel.dtype;
  if (kernel.m > 0) json.update({{"m", kernel.m}, {"n", kernel.n}, {"k", kernel.k}});
  if (kernel.batch != 1) json["batch"] = kernel.batch;
  if (!kernel.is_aligned) json["aligned"] = false;
  if (kernel.sequence > 0) {
    json.update({{"sequence", kernel.sequence}, {"heads", kernel.heads}, {"head_size", kernel.head_size}});
  }
  if (kernel.is_channels_last) json["channels_last"] = true;
  json.update({{"flops", of.work.flops.count}, {"bytes", of.work.bytes.count}});
  if (of.work.traffic != 1) json["traffic"] = of.work.traffic;
  if (of.work.launches != 1) json["launches"] = of.work.launches;
  if (of.count != 1) json["count"] = of.count;
  if (of.of_weight) json["of_weight"] = true;
  return json;
}

Json stage_json(const Stage& stage) {
  Json json = {{"name", stage.name},
               {"forward_s", stage.forward.value},
               {"backward_s", stage.backward.value},
               {"output_bytes", stage.output.count},
               {"saved_bytes", stage.saved.count},
               {"forward_workspace_bytes", stage.forward_workspace.count},
               {"forward_nograd_workspace_bytes", stage.forward_nograd_workspace.count},
               {"input_gradient_bytes", stage.input_gradient.count},
               {"backward_workspace_bytes", stage.backward_workspace.count},
               {"backward_accumulate_workspace_bytes", stage.backward_accumulate_workspace.count},
               {"parameters", stage.parameters}};
  if (stage.backward_released_workspace) {
    json["backward_released_workspace_bytes"] = stage.backward_released_workspace->count;
  }
  if (stage.backward_accumulate_released_workspace) {
    json["backward_accumulate_released_workspace_bytes"] = stage.backward_accumulate_released_workspace->count;
  }
  if (stage.parameter_gradient) json["parameter_gradient_bytes"] = stage.parameter_gradient->count;
  json["keeps_input"] = stage.keeps_input;
  json["keeps_output"] = stage.keeps_output;
  if (stage.tensors) {
    json["kept_tensors"] = stage.tensors->kept;
    json["gradient_tensors"] = stage.tensors->gradients;
  }
  for (const InnerTensor& tensor : stage.inner) json["saved_tensors"].push_back(inner_json(tensor));
  for (const BoundaryUse& use : stage.boundary_uses) {
    json["boundary_uses"].push_back({{"tensor", use.tensor}, {"uses", uses_json(use.uses)}});
  }
  json["forward_nograd_s"] = stage.forward_nograd.value;
  if (stage.load > Seconds{0}) json["load_s"] = stage.load.value;
  if (stage.has_backward_weight) json["backward_weight_s"] = stage.backward_weight.value;
  if (stage.weight_saved) json["weight_saved_bytes"] = stage.weight_saved->count;
  if (stage.weight_made > Bytes{0}) json["weight_made_bytes"] = stage.weight_made.count;
  if (!stage.weight_keeps_input) json["weight_keeps_input"] = false;
  if (stage.weight_keeps_output) json["weight_keeps_output"] = true;
  if (!stage.weight_keeps_gradient) json["weight_keeps_gradient"] = false;
  for (const auto& [key, workspace] :
       {std::pair{"backward_input_workspace_bytes", stage.backward_input_workspace},
        std::pair{"backward_weight_workspace_bytes", stage.backward_weight_workspace},
        std::pair{"backward_weight_accumulate_workspace_bytes", stage.backward_weight_accumulate_workspace}}) {
    if (workspace) json[key] = workspace->count;
  }
  if (stage.forward_flops) json["forward_flops"] = stage.forward_flops->count;
  if (stage.backward_flops) json["backward_flops"] = stage.backward_flops->count;
  if (stage.forward_bytes_moved) json["forward_bytes_moved"] = stage.forward_bytes_moved->count;
  if (stage.backward_bytes_moved) json["backward_bytes_moved"] = stage.backward_bytes_moved->count;
  if (stage.forward_kernels) json["forward_kernels"] = *stage.forward_kernels;
  if (stage.backward_kernels) json["backward_kernels"] = *stage.backward_kernels;
  for (const StageKernel& each : stage.forward_made_of) json["forward_made_of"].push_back(kernel_json(each));
  for (const StageKernel& each : stage.backward_made_of) json["backward_made_of"].push_back(kernel_json(each));
  json["recomputable"] = stage.recomputable;
  return json;
}

Json alternative_json(const Alternative& way) {
  Json json = {{"name", way.name}};
  if (way.duration) json["time_s"] = way.duration->value;
  if (way.flops) json["flops"] = way.flops->count;
  if (way.bytes_moved) json["bytes"] = way.bytes_moved->count;
  json["workspace_bytes"] = way.workspace.count;
  return json;
}

Json op_json(const Op& op) {
  Json json = {{"name", op.name}};
  if (!op.kind.empty()) json["kind"] = op.kind;
  json["phase"] = written(op.phase);
  json["stage"] = op.stage;
  if (op.duration) json["time_s"] = op.duration->value;
  if (op.nograd_duration) json["nograd_time_s"] = op.nograd_duration->value;
  if (op.load > Seconds{0}) json["load_s"] = op.load.value;
  if (op.flops) json["flops"] = op.flops->count;
  if (op.bytes_moved) json["bytes"] = op.bytes_moved->count;
  if (op.kernels) json["kernels"] = *op.kernels;
  if (op.launches != 1) json["launches"] = op.launches;
  if (op.traffic != 1) json["traffic"] = op.traffic;
  json["workspace_bytes"] = op.workspace.count;
  if (op.nograd_workspace) json["nograd_workspace_bytes"] = op.nograd_workspace->count;
  if (op.accumulate_workspace) json["accumulate_workspace_bytes"] = op.accumulate_workspace->count;
  json["inputs"] = indices(op.inputs);
  json["outputs"] = indices(op.outputs);
  if (!op.saved.empty()) json["saved"] = indices(op.saved);
  if (!op.mutates.empty()) json["mutates"] = indices(op.mutates);
  for (const Alternative& way : op.alternatives) json["alternatives"].push_back(alternative_json(way));
  if (!op.recomputable) json["recomputable"] = false;
  if (!op.attributes.empty()) json["attributes"] = notes_of(op.attributes);
  return json;
}

/// Puts the file together key by key.
class TraceText {
 public:
  void add(std::string_view key, const Json& value) { begin(key).append(json_text(value)); }

  /// One line an element.
  template <class List, class ToJson>
  void add_lines(std::string_view key, const List& list, ToJson to_json) {
    begin(key) += "[";
    for (std::size_t i = 0; i < list.size(); ++i) {
      text_.append(i == 0 ? "\n    " : ",\n    ").append(json_text(to_json(list[i])));
    }
    text_ += list.empty() ? "]" : "\n  ]";
  }

  /// One line a stage, and one for plain training.
  void add_allocations(const ChainAllocations& allocations) {
    begin("allocations") += "{";
    text_ += "\n    \"stages\": [";
    for (std::size_t i = 0; i < allocations.stages.size(); ++i) {
      text_.append(i == 0 ? "\n      " : ",\n      ").append(json_text(to_json(allocations.stages[i])));
    }
    text_ += "\n    ]";
    if (allocations.plain) text_.append(",\n    \"plain\": ").append(json_text(to_json(*allocations.plain)));
    text_ += "\n  }";
  }

  std::string finish() && { return std::move(text_.append("\n}\n")); }

 private:
  std::string& begin(std::string_view key) {
    text_.append(text_.empty() ? "{\n  " : ",\n  ").append(json_text(Json(key))).append(": ");
    return text_;
  }

  std::string text_;
};

std::string text_of(const Chain& chain, const std::optional<ChainAllocations>& allocations) {
  TraceText text;
  text.add("format", trace_format);
  text.add("kind", "chain");
  text.add("name", chain.name);
  text.add("source", source_json(chain.source));
  text.add("input_bytes", chain.input.count);
  if (!chain.tensors.empty()) {
    text.add_lines("tensors", chain.tensors, [](const BoundaryTensor& tensor) {
      Json json = {{"name", tensor.name}, {"bytes", tensor.bytes.count}};
      if (!tensor.shape.empty()) json["shape"] = tensor.shape;
      if (!tensor.dtype.empty()) json["dtype"] = tensor.dtype;
      if (tensor.gradient) json["gradient_bytes"] = tensor.gradient->count;
      return json;
    });
  }
  if (!chain.boundaries.empty()) text.add("boundaries", chain.boundaries);
  text.add_lines("parameters", chain.parameters, [](const Parameter& parameter) {
    Json json = {{"name", parameter.name}, {"bytes", parameter.bytes.count}};
    if (!parameter.dtype.empty()) json["dtype"] = parameter.dtype;
    if (!parameter.trained) json["trained"] = false;
    return json;
  });
  if (!chain.shared.empty()) {
    text.add_lines("shared", chain.shared, [](const SharedParameter& shared) {
      return Json{{"parameter", shared.parameter},
                  {"stages", shared.stages},
                  {"sum", shared.in_place ? "in_place" : "out_of_place"}};
    });
  }
  if (chain.plain) text.add("plain_iteration_s", chain.plain->iteration.value);
  if (allocations) text.add_allocations(*allocations);
  text.add_lines("stages", chain.stages, stage_json);
  return std::move(text).finish();
}

std::string text_of(const Graph& graph, const std::optional<ChainAllocations>&) {
  TraceText text;
  text.add("format", trace_format);
  text.add("kind", "graph");
  text.add("name", graph.name);
  text.add("source", source_json(graph.source));
  text.add_lines("tensors", graph.tensors, [](const Tensor& tensor) {
    Json json = {{"name", tensor.name}, {"kind", written(tensor.kind)}, {"bytes", tensor.bytes.count}};
    json["storage"] = tensor.storage.index;
    if (!tensor.shape.empty()) json["shape"] = tensor.shape;
    if (!tensor.dtype.empty()) json["dtype"] = tensor.dtype;
    if (tensor.gradient_of) json["gradient_of"] = tensor.gradient_of->index;
    return json;
  });
  text.add_lines("ops", graph.ops, op_json);
  if (!graph.colocate.empty()) {
    text.add_lines("colocate", graph.colocate, [](const std::vector<OpId>& group) { return indices(group); });
  }
  return std::move(text).finish();
}

}  // namespace

std::string trace_text(const Trace& trace) {
  return std::visit([&](const auto& model) { return text_of(model, trace.allocations); }, trace.model);
}

void write_trace(const std::filesystem::path& path, const Trace& trace) {
  write_text_file(path, trace_text(trace));
}

}  // namespace plimsoll
