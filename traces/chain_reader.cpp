// Chain traces. Defaults are resolved here: a Chain has no unknown but what is optional in it.

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "sim/io/fields.h"
#include "traces/trace_parts.h"

namespace plimsoll {
namespace {

/// A stage with what its defaults depend on.
struct StageDraft {
  Stage stage;
  std::optional<Seconds> forward_nograd;
  std::optional<Bytes> input_gradient, forward_nograd_workspace, backward_accumulate_workspace, parameter_bytes;
};

struct ChainDraft {
  Chain chain;
  std::vector<StageDraft> stages;
  bool has_boundaries = false;
};

using enum Need;

const Field<StageDraft, JsonCursor> stage_fields[] = {
    {"name", required, [](StageDraft& d, JsonCursor c) { d.stage.name = c.string(); }},
    {"forward_s", required, [](StageDraft& d, JsonCursor c) { d.stage.forward = c.seconds(); }},
    {"backward_s", required, [](StageDraft& d, JsonCursor c) { d.stage.backward = c.seconds(); }},
    {"output_bytes", required, [](StageDraft& d, JsonCursor c) { d.stage.output = c.bytes(); }},
    {"saved_bytes", required, [](StageDraft& d, JsonCursor c) { d.stage.saved = c.bytes(); }},
    {"forward_workspace_bytes", optional, [](StageDraft& d, JsonCursor c) { d.stage.forward_workspace = c.bytes(); }},
    {"forward_nograd_workspace_bytes", optional,
     [](StageDraft& d, JsonCursor c) { d.forward_nograd_workspace = c.bytes(); }},
    {"input_gradient_bytes", optional, [](StageDraft& d, JsonCursor c) { d.input_gradient = c.bytes(); }},
    {"backward_workspace_bytes", optional, [](StageDraft& d, JsonCursor c) { d.stage.backward_workspace = c.bytes(); }},
    {"backward_accumulate_workspace_bytes", optional,
     [](StageDraft& d, JsonCursor c) { d.backward_accumulate_workspace = c.bytes(); }},
    {"parameters", optional, [](StageDraft& d, JsonCursor c) { d.stage.parameters = read_indices(c); }},
    {"parameter_bytes", optional, [](StageDraft& d, JsonCursor c) { d.parameter_bytes = c.bytes(); }},
    {"parameter_gradient_bytes", optional, [](StageDraft& d, JsonCursor c) { d.stage.parameter_gradient = c.bytes(); }},
    {"keeps_input", optional, [](StageDraft& d, JsonCursor c) { d.stage.keeps_input = c.boolean(); }},
    {"keeps_output", optional, [](StageDraft& d, JsonCursor c) { d.stage.keeps_output = c.boolean(); }},
    {"forward_nograd_s", optional, [](StageDraft& d, JsonCursor c) { d.forward_nograd = c.seconds(); }},
    {"backward_weight_s", optional,
     [](StageDraft& d, JsonCursor c) {
       d.stage.backward_weight = c.seconds();
       d.stage.has_backward_weight = true;
     }},
    {"weight_saved_bytes", optional, [](StageDraft& d, JsonCursor c) { d.stage.weight_saved = c.bytes(); }},
    {"forward_flops", optional, [](StageDraft& d, JsonCursor c) { d.stage.forward_flops = c.flops(); }},
    {"backward_flops", optional, [](StageDraft& d, JsonCursor c) { d.stage.backward_flops = c.flops(); }},
    {"forward_bytes_moved", optional, [](StageDraft& d, JsonCursor c) { d.stage.forward_bytes_moved = c.bytes(); }},
    {"backward_bytes_moved", optional, [](StageDraft& d, JsonCursor c) { d.stage.backward_bytes_moved = c.bytes(); }},
    {"recomputable", optional, [](StageDraft& d, JsonCursor c) { d.stage.recomputable = c.boolean(); }},
};

struct ParameterDraft {
  Parameter parameter;
  std::size_t position = 0;
};

const Field<ParameterDraft, JsonCursor> parameter_fields[] = {
    {"id", optional, [](ParameterDraft& d, JsonCursor c) { check_id(c, d.position); }},
    {"name", optional, [](ParameterDraft& d, JsonCursor c) { d.parameter.name = c.string(); }},
    {"bytes", required, [](ParameterDraft& d, JsonCursor c) { d.parameter.bytes = c.bytes(); }},
};

struct TensorDraft {
  BoundaryTensor tensor;
  std::size_t position = 0;
};

const Field<TensorDraft, JsonCursor> tensor_fields[] = {
    {"id", optional, [](TensorDraft& d, JsonCursor c) { check_id(c, d.position); }},
    {"name", optional, [](TensorDraft& d, JsonCursor c) { d.tensor.name = c.string(); }},
    {"bytes", required, [](TensorDraft& d, JsonCursor c) { d.tensor.bytes = c.bytes(); }},
    {"shape", optional, [](TensorDraft& d, JsonCursor c) { d.tensor.shape = read_shape(c); }},
    {"dtype", optional, [](TensorDraft& d, JsonCursor c) { d.tensor.dtype = c.string(); }},
};

void read_stages(ChainDraft& draft, JsonCursor cursor) {
  cursor.array([&](JsonCursor element) { read_fields(element, stage_fields, draft.stages.emplace_back()); });
}

void read_parameters(ChainDraft& draft, JsonCursor cursor) {
  cursor.array([&](JsonCursor element) {
    ParameterDraft parameter{{"parameter" + std::to_string(draft.chain.parameters.size()), {}},
                             draft.chain.parameters.size()};
    read_fields(element, parameter_fields, parameter);
    draft.chain.parameters.push_back(std::move(parameter.parameter));
  });
}

void read_tensors(ChainDraft& draft, JsonCursor cursor) {
  cursor.array([&](JsonCursor element) {
    TensorDraft tensor{{"tensor" + std::to_string(draft.chain.tensors.size()), {}}, draft.chain.tensors.size()};
    read_fields(element, tensor_fields, tensor);
    draft.chain.tensors.push_back(std::move(tensor.tensor));
  });
}

void read_boundaries(ChainDraft& draft, JsonCursor cursor) {
  draft.has_boundaries = true;
  cursor.array([&](JsonCursor element) { draft.chain.boundaries.push_back(read_indices(element)); });
}

const Field<ChainDraft, JsonCursor> chain_fields[] = {
    {"format", required, [](ChainDraft&, JsonCursor) {}},
    {"kind", required, [](ChainDraft&, JsonCursor) {}},
    {"name", required, [](ChainDraft& d, JsonCursor c) { d.chain.name = c.string(); }},
    {"source", optional, [](ChainDraft& d, JsonCursor c) { d.chain.source = read_source(c); }},
    {"input_bytes", required, [](ChainDraft& d, JsonCursor c) { d.chain.input = c.bytes(); }},
    {"tensors", optional, read_tensors},
    {"boundaries", optional, read_boundaries},
    {"parameters", optional, read_parameters},
    {"stages", required, read_stages},
};

/// The stage with its defaults; anonymous parameters are appended to the chain's.
Stage resolved(const StageDraft& draft, Bytes input, std::vector<Parameter>& parameters) {
  Stage stage = draft.stage;
  stage.forward_nograd = draft.forward_nograd.value_or(stage.forward);
  stage.input_gradient = draft.input_gradient.value_or(input);
  stage.forward_nograd_workspace = draft.forward_nograd_workspace.value_or(stage.forward_workspace);
  stage.backward_accumulate_workspace = draft.backward_accumulate_workspace.value_or(stage.backward_workspace);
  if (stage.parameters.empty() && draft.parameter_bytes.value_or(Bytes{}) > Bytes{}) {
    stage.parameters.push_back(static_cast<std::uint32_t>(parameters.size()));
    parameters.push_back({stage.name + ".parameters", *draft.parameter_bytes});
  }
  return stage;
}

void check_stage(JsonDocument& document, const ChainDraft& draft, std::size_t i) {
  const auto& [stage, nograd, gradient, nograd_workspace, accumulate_workspace, parameter_bytes] = draft.stages[i];
  if (stage.saved < stage.output) {
    document.complain(below("stages", i, "saved_bytes"),
                      fmt::format("less than the output, which is part of it, expected at least {}, found {}",
                                  stage.output.count, stage.saved.count));
  }
  if (stage.backward_weight > stage.backward) {
    document.complain(below("stages", i, "backward_weight_s"),
                      fmt::format("more than the backward, of which it is a part, expected at most {}, found {}",
                                  stage.backward.value, stage.backward_weight.value));
  }
  std::set<std::uint32_t> used;
  Bytes sum;
  for (std::size_t k = 0; k < stage.parameters.size(); ++k) {
    const std::string path = below(below("stages", i, "parameters"), k);
    const std::uint32_t parameter = stage.parameters[k];
    if (!check_index(document, path, parameter, draft.chain.parameters.size(), "parameter")) continue;
    if (!used.insert(parameter).second)
      document.complain(path, fmt::format("parameter {} for the second time", parameter));
    sum += draft.chain.parameters[parameter].bytes;
  }
  if (!stage.parameters.empty() && parameter_bytes && *parameter_bytes != sum) {
    document.complain(
        below("stages", i, "parameter_bytes"),
        fmt::format("not the sum of the stage's parameters, expected {}, found {}", sum.count, parameter_bytes->count));
  }
}

/// Boundaries, where given, list the tensors whose sum the stages state.
void check_boundaries(JsonDocument& document, const ChainDraft& draft) {
  const Chain& chain = draft.chain;
  if (!draft.has_boundaries) return;
  if (chain.boundaries.size() != draft.stages.size() + 1) {
    document.complain("boundaries", fmt::format("expected {}, one more than stages, found {}", draft.stages.size() + 1,
                                                chain.boundaries.size()));
    return;
  }
  for (std::size_t j = 0; j < chain.boundaries.size(); ++j) {
    const std::set<std::uint32_t> distinct(chain.boundaries[j].begin(), chain.boundaries[j].end());
    Bytes sum;
    bool known = true;
    for (std::size_t k = 0; k < chain.boundaries[j].size(); ++k) {
      known &= check_index(document, below(below("boundaries", j), k), chain.boundaries[j][k], chain.tensors.size(),
                           "tensor");
    }
    if (!known) continue;
    for (const std::uint32_t tensor : distinct) sum += chain.tensors[tensor].bytes;
    const Bytes stated = j == 0 ? chain.input : draft.stages[j - 1].stage.output;
    if (sum == stated) continue;
    document.complain(
        j == 0 ? "input_bytes" : below("stages", j - 1, "output_bytes"),
        fmt::format("not the sum of the tensors of boundaries[{}], expected {}, found {}", j, sum.count, stated.count));
  }
}

}  // namespace

Chain read_chain(JsonDocument& document) {
  ChainDraft draft;
  document.read([&](JsonCursor root) { read_fields(root, chain_fields, draft); });

  if (draft.stages.empty()) document.complain("stages", "expected at least one stage");
  for (std::size_t i = 0; i < draft.stages.size(); ++i) check_stage(document, draft, i);
  check_boundaries(document, draft);
  document.throw_if_any();

  Chain& chain = draft.chain;
  Bytes input = chain.input;
  for (const StageDraft& stage : draft.stages) {
    chain.stages.push_back(resolved(stage, input, chain.parameters));
    input = chain.stages.back().output;
  }
  return std::move(chain);
}

}  // namespace plimsoll
