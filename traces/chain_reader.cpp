// Chain traces. Defaults are resolved here: a Chain has no unknown but what is optional in it.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/core/names.h"
#include "sim/io/fields.h"
#include "sim/io/one_of.h"
#include "traces/allocations_file.h"
#include "traces/chain_draft.h"
#include "traces/trace_file.h"
#include "traces/trace_parts.h"

namespace plimsoll {
namespace {

using enum Need;

/// `conv3x3.input` and the like.
std::vector<LayerUse> read_uses(JsonCursor cursor) {
  std::vector<LayerUse> uses;
  cursor.array([&](JsonCursor element) {
    const std::string text = element.string();
    const std::optional<LayerUse> use = layer_use(text);
    if (use) {
      uses.push_back(*use);
    } else {
      element.complain("expected a kind of layer with .input, .output or .shape, such as conv.input, " +
                       element.found());
    }
  });
  return uses;
}

struct InnerDraft {
  InnerTensor tensor;
  std::size_t position = 0;
};

const Field<InnerDraft, JsonCursor> inner_fields[] = {
    {"id", optional, [](InnerDraft& d, JsonCursor c) { check_id(c, d.position); }},
    {"name", optional, [](InnerDraft& d, JsonCursor c) { d.tensor.name = c.string(); }},
    {"bytes", required, [](InnerDraft& d, JsonCursor c) { d.tensor.bytes = c.bytes(); }},
    {"shape", optional, [](InnerDraft& d, JsonCursor c) { d.tensor.shape = read_shape(c); }},
    {"dtype", optional, [](InnerDraft& d, JsonCursor c) { d.tensor.dtype = c.string(); }},
    {"uses", optional, [](InnerDraft& d, JsonCursor c) { d.tensor.uses = read_uses(c); }},
};

const Field<BoundaryUse, JsonCursor> boundary_use_fields[] = {
    {"tensor", required, [](BoundaryUse& u, JsonCursor c) { u.tensor = c.index(); }},
    {"uses", required, [](BoundaryUse& u, JsonCursor c) { u.uses = read_uses(c); }},
};

void read_inner_tensors(StageDraft& draft, JsonCursor cursor) {
  std::vector<InnerTensor>& inner = draft.stage.inner;
  cursor.array([&](JsonCursor element) {
    InnerDraft tensor{{"tensor" + std::to_string(inner.size()), {}}, inner.size()};
    read_fields(element, inner_fields, tensor);
    inner.push_back(std::move(tensor.tensor));
  });
}

void read_boundary_uses(StageDraft& draft, JsonCursor cursor) {
  cursor.array(
      [&](JsonCursor element) { read_fields(element, boundary_use_fields, draft.stage.boundary_uses.emplace_back()); });
}

const Field<StageKernel, JsonCursor> kernel_fields[] = {
    {"kind", required, [](StageKernel& k, JsonCursor c) { k.kernel.kind = one_of<KernelKind>(c); }},
    {"dtype", optional, [](StageKernel& k, JsonCursor c) { k.kernel.dtype = c.string(); }},
    {"m", optional, [](StageKernel& k, JsonCursor c) { k.kernel.m = above_zero(c); }},
    {"n", optional, [](StageKernel& k, JsonCursor c) { k.kernel.n = above_zero(c); }},
    {"k", optional, [](StageKernel& k, JsonCursor c) { k.kernel.k = above_zero(c); }},
    {"batch", optional, [](StageKernel& k, JsonCursor c) { k.kernel.batch = above_zero(c); }},
    {"aligned", optional, [](StageKernel& k, JsonCursor c) { k.kernel.is_aligned = c.boolean(); }},
    {"sequence", optional, [](StageKernel& k, JsonCursor c) { k.kernel.sequence = above_zero(c); }},
    {"heads", optional, [](StageKernel& k, JsonCursor c) { k.kernel.heads = above_zero(c); }},
    {"head_size", optional, [](StageKernel& k, JsonCursor c) { k.kernel.head_size = above_zero(c); }},
    {"channels_last", optional, [](StageKernel& k, JsonCursor c) { k.kernel.is_channels_last = c.boolean(); }},
    {"flops", required, [](StageKernel& k, JsonCursor c) { k.work.flops = c.flops(); }},
    {"bytes", required, [](StageKernel& k, JsonCursor c) { k.work.bytes = c.bytes(); }},
    {"traffic", optional, [](StageKernel& k, JsonCursor c) { k.work.traffic = above_zero(c); }},
    {"launches", optional, [](StageKernel& k, JsonCursor c) { k.work.launches = above_zero(c); }},
    {"count", optional, [](StageKernel& k, JsonCursor c) { k.count = above_zero(c); }},
    {"of_weight", optional, [](StageKernel& k, JsonCursor c) { k.of_weight = c.boolean(); }},
};

/// Sizes that a product or an attention is looked up by.
void check_sizes(const StageKernel& of, JsonCursor cursor) {
  const GpuKernel& kernel = of.kernel;
  using enum KernelKind;
  if (kernel.kind == product || kernel.kind == batched_product) {
    if (kernel.m == 0 || kernel.n == 0 || kernel.k == 0) return cursor.complain("expected m, n and k of a product");
    const double flops = 2 * kernel.batch * kernel.m * kernel.n * kernel.k;
    constexpr double near = 0.01;  // a bias counts in some traces' flops
    if (!(std::abs(of.work.flops.count - flops) <= near * flops)) {
      cursor.complain(
          fmt::format("expected 2 batch m n k = {:.9g} flops of a product, found {:.9g}", flops, of.work.flops.count));
    }
  }
  const bool attends = kernel.kind == attention || kernel.kind == attention_backward;
  if (attends && (kernel.sequence == 0 || kernel.heads == 0 || kernel.head_size == 0)) {
    cursor.complain("expected sequence, heads and head_size of an attention");
  }
}

StageKernels read_stage_kernels(JsonCursor cursor) {
  std::vector<StageKernel> kernels;
  cursor.array([&](JsonCursor element) {
    StageKernel kernel;
    read_fields(element, kernel_fields, kernel);
    check_sizes(kernel, element);
    kernels.push_back(std::move(kernel));
  });
  return StageKernels(std::move(kernels));
}

const Field<StageDraft, JsonCursor> stage_fields[] = {
    {"id", optional, [](StageDraft& d, JsonCursor c) { check_id(c, d.position); }},
    {"name", required, [](StageDraft& d, JsonCursor c) { d.stage.name = c.string(); }},
    {"forward_s", required, [](StageDraft& d, JsonCursor c) { d.stage.forward = c.seconds(); }},
    {"backward_s", required, [](StageDraft& d, JsonCursor c) { d.stage.backward = c.seconds(); }},
    {"output_bytes", required, [](StageDraft& d, JsonCursor c) { d.stage.output = c.bytes(); }},
    {"saved_bytes", required, [](StageDraft& d, JsonCursor c) { d.stage.saved = c.bytes(); }},
    {"forward_workspace_bytes", optional, [](StageDraft& d, JsonCursor c) { d.stage.forward_workspace = c.bytes(); }},
    {"forward_nograd_workspace_bytes", optional,
     [](StageDraft& d, JsonCursor c) { d.forward_nograd_workspace = c.bytes(); }},
    {"input_gradient_bytes", optional, [](StageDraft& d, JsonCursor c) { d.input_gradient = c.bytes(); }},
    {"backward_workspace_bytes", optional,
     [](StageDraft& d, JsonCursor c) { d.stage.backward_workspace = c.signed_bytes(); }},
    {"backward_accumulate_workspace_bytes", optional,
     [](StageDraft& d, JsonCursor c) { d.backward_accumulate_workspace = c.signed_bytes(); }},
    {"backward_released_workspace_bytes", optional,
     [](StageDraft& d, JsonCursor c) { d.stage.backward_released_workspace = c.signed_bytes(); }},
    {"backward_accumulate_released_workspace_bytes", optional,
     [](StageDraft& d, JsonCursor c) { d.stage.backward_accumulate_released_workspace = c.signed_bytes(); }},
    {"parameters", optional, [](StageDraft& d, JsonCursor c) { d.stage.parameters = read_indices(c); }},
    {"parameter_bytes", optional, [](StageDraft& d, JsonCursor c) { d.parameter_bytes = c.bytes(); }},
    {"parameter_gradient_bytes", optional, [](StageDraft& d, JsonCursor c) { d.stage.parameter_gradient = c.bytes(); }},
    {"keeps_input", optional, [](StageDraft& d, JsonCursor c) { d.keeps_input = c.boolean(); }},
    {"keeps_output", optional, [](StageDraft& d, JsonCursor c) { d.keeps_output = c.boolean(); }},
    {"kept_tensors", optional, [](StageDraft& d, JsonCursor c) { d.kept_tensors = read_indices(c); }},
    {"gradient_tensors", optional, [](StageDraft& d, JsonCursor c) { d.gradient_tensors = read_indices(c); }},
    {"saved_tensors", optional, read_inner_tensors},
    {"boundary_uses", optional, read_boundary_uses},
    {"forward_nograd_s", optional, [](StageDraft& d, JsonCursor c) { d.forward_nograd = c.seconds(); }},
    {"load_s", optional, [](StageDraft& d, JsonCursor c) { d.stage.load = c.seconds(); }},
    {"backward_weight_s", optional,
     [](StageDraft& d, JsonCursor c) {
       d.stage.backward_weight = c.seconds();
       d.stage.has_backward_weight = true;
     }},
    {"weight_saved_bytes", optional, [](StageDraft& d, JsonCursor c) { d.stage.weight_saved = c.bytes(); }},
    {"weight_made_bytes", optional, [](StageDraft& d, JsonCursor c) { d.stage.weight_made = c.bytes(); }},
    {"weight_keeps_input", optional, [](StageDraft& d, JsonCursor c) { d.stage.weight_keeps_input = c.boolean(); }},
    {"weight_keeps_output", optional, [](StageDraft& d, JsonCursor c) { d.stage.weight_keeps_output = c.boolean(); }},
    {"weight_keeps_gradient", optional,
     [](StageDraft& d, JsonCursor c) { d.stage.weight_keeps_gradient = c.boolean(); }},
    {"backward_input_workspace_bytes", optional,
     [](StageDraft& d, JsonCursor c) { d.stage.backward_input_workspace = c.bytes(); }},
    {"backward_weight_workspace_bytes", optional,
     [](StageDraft& d, JsonCursor c) { d.stage.backward_weight_workspace = c.bytes(); }},
    {"backward_weight_accumulate_workspace_bytes", optional,
     [](StageDraft& d, JsonCursor c) { d.stage.backward_weight_accumulate_workspace = c.bytes(); }},
    {"forward_flops", optional, [](StageDraft& d, JsonCursor c) { d.stage.forward_flops = c.flops(); }},
    {"backward_flops", optional, [](StageDraft& d, JsonCursor c) { d.stage.backward_flops = c.flops(); }},
    {"forward_bytes_moved", optional, [](StageDraft& d, JsonCursor c) { d.stage.forward_bytes_moved = c.bytes(); }},
    {"backward_bytes_moved", optional, [](StageDraft& d, JsonCursor c) { d.stage.backward_bytes_moved = c.bytes(); }},
    {"forward_kernels", optional, [](StageDraft& d, JsonCursor c) { d.stage.forward_kernels = c.number(); }},
    {"backward_kernels", optional, [](StageDraft& d, JsonCursor c) { d.stage.backward_kernels = c.number(); }},
    {"forward_made_of", optional, [](StageDraft& d, JsonCursor c) { d.stage.forward_made_of = read_stage_kernels(c); }},
    {"backward_made_of", optional,
     [](StageDraft& d, JsonCursor c) { d.stage.backward_made_of = read_stage_kernels(c); }},
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
    {"dtype", optional, [](ParameterDraft& d, JsonCursor c) { d.parameter.dtype = c.string(); }},
    {"trained", optional, [](ParameterDraft& d, JsonCursor c) { d.parameter.trained = c.boolean(); }},
};

struct ChainTensorDraft {
  BoundaryTensor tensor;
  std::size_t position = 0;
};

const Field<ChainTensorDraft, JsonCursor> tensor_fields[] = {
    {"id", optional, [](ChainTensorDraft& d, JsonCursor c) { check_id(c, d.position); }},
    {"name", optional, [](ChainTensorDraft& d, JsonCursor c) { d.tensor.name = c.string(); }},
    {"bytes", required, [](ChainTensorDraft& d, JsonCursor c) { d.tensor.bytes = c.bytes(); }},
    {"gradient_bytes", optional, [](ChainTensorDraft& d, JsonCursor c) { d.tensor.gradient = c.bytes(); }},
    {"shape", optional, [](ChainTensorDraft& d, JsonCursor c) { d.tensor.shape = read_shape(c); }},
    {"dtype", optional, [](ChainTensorDraft& d, JsonCursor c) { d.tensor.dtype = c.string(); }},
};

const Field<SharedParameter, JsonCursor> shared_fields[] = {
    {"parameter", required, [](SharedParameter& s, JsonCursor c) { s.parameter = c.index(); }},
    {"stages", required, [](SharedParameter& s, JsonCursor c) { s.stages = read_indices(c); }},
    {"sum", required,
     [](SharedParameter& s, JsonCursor c) {
       const std::string sum = c.string();
       s.in_place = sum == "in_place";
       if (!s.in_place && sum != "out_of_place") c.complain("expected \"in_place\" or \"out_of_place\", " + c.found());
     }},
};

void read_stages(ChainDraft& draft, JsonCursor cursor) {
  cursor.array([&](JsonCursor element) {
    StageDraft stage;
    stage.position = draft.stages.size();
    read_fields(element, stage_fields, stage);
    draft.stages.push_back(std::move(stage));
  });
}

void read_parameters(ChainDraft& draft, JsonCursor cursor) {
  cursor.array([&](JsonCursor element) {
    ParameterDraft parameter{{"parameter" + std::to_string(draft.chain.parameters.size()), {}},
                             draft.chain.parameters.size()};
    read_fields(element, parameter_fields, parameter);
    draft.chain.parameters.push_back(std::move(parameter.parameter));
  });
}

void read_chain_tensors(ChainDraft& draft, JsonCursor cursor) {
  cursor.array([&](JsonCursor element) {
    ChainTensorDraft tensor{{"tensor" + std::to_string(draft.chain.tensors.size()), {}}, draft.chain.tensors.size()};
    read_fields(element, tensor_fields, tensor);
    draft.chain.tensors.push_back(std::move(tensor.tensor));
  });
}

void read_boundaries(ChainDraft& draft, JsonCursor cursor) {
  draft.has_boundaries = true;
  cursor.array([&](JsonCursor element) { draft.chain.boundaries.push_back(read_indices(element)); });
}

void read_shared(ChainDraft& draft, JsonCursor cursor) {
  cursor.array([&](JsonCursor element) { read_fields(element, shared_fields, draft.chain.shared.emplace_back()); });
}

const Field<ChainDraft, JsonCursor> chain_fields[] = {
    schema_field<ChainDraft, JsonCursor>,
    {"format", required, [](ChainDraft&, JsonCursor) {}},
    {"kind", required, [](ChainDraft&, JsonCursor) {}},
    {"name", required, [](ChainDraft& d, JsonCursor c) { d.chain.name = c.string(); }},
    {"source", optional, [](ChainDraft& d, JsonCursor c) { d.chain.source = read_source(c); }},
    {"input_bytes", required, [](ChainDraft& d, JsonCursor c) { d.chain.input = c.bytes(); }},
    {"tensors", optional, read_chain_tensors},
    {"boundaries", optional, read_boundaries},
    {"parameters", optional, read_parameters},
    {"shared", optional, read_shared},
    {"plain_iteration_s", optional, [](ChainDraft& d, JsonCursor c) { d.plain_iteration = c.seconds(); }},
    {"allocations", optional, [](ChainDraft& d, JsonCursor c) { d.allocations = read_allocations(c); }},
    {"stages", required, read_stages},
};

/// The stage with its defaults; anonymous parameters are appended to the chain's.
Stage resolved(const StageDraft& draft, Bytes input, std::vector<Parameter>& parameters) {
  Stage stage = draft.stage;
  stage.forward_nograd = draft.forward_nograd.value_or(stage.forward);
  stage.input_gradient = draft.input_gradient.value_or(input);
  stage.keeps_input = draft.keeps_input.value_or(true);
  stage.keeps_output = draft.keeps_output.value_or(true);
  stage.forward_nograd_workspace = draft.forward_nograd_workspace.value_or(stage.forward_workspace);
  stage.backward_accumulate_workspace =
      draft.backward_accumulate_workspace.value_or(std::max(Bytes{}, stage.backward_workspace));
  if (stage.parameters.empty() && draft.parameter_bytes.value_or(Bytes{}) > Bytes{}) {
    stage.parameters.push_back(static_cast<std::uint32_t>(parameters.size()));
    parameters.push_back({stage.name + ".parameters", *draft.parameter_bytes});
  }
  return stage;
}

}  // namespace

Trace read_chain(JsonDocument& document) {
  ChainDraft draft;
  document.read([&](JsonCursor root) { read_fields(root, chain_fields, draft); });

  check_chain(document, draft);
  document.throw_if_any();

  Chain& chain = draft.chain;
  Bytes input = chain.input;
  for (const StageDraft& stage : draft.stages) {
    chain.stages.push_back(resolved(stage, input, chain.parameters));
    input = chain.stages.back().output;
  }
  const Seconds stages = all_alone(chain);
  if (draft.plain_iteration && stages > Seconds{0}) chain.plain = {*draft.plain_iteration, stages};
  if (draft.allocations) check_allocations(document, chain, *draft.allocations);
  return {std::move(chain), std::move(draft.allocations)};
}

}  // namespace plimsoll
