#include "validate/cpu/step_work.h"

#include <fmt/format.h>

#include "sim/core/expects.h"
#include "sim/core/op_kind.h"
#include "validate/cpu/kernels/codec_kernels.h"
#include "validate/reference/elementwise.h"

namespace plimsoll {
namespace {

std::optional<std::string> lacks_conversion(const Graph& graph, const PlannedConversion& conversion) {
  const auto& [codec, t, from, to, packs] = conversion;
  std::optional<std::string> why = lacks_codec(codec, graph, graph[t]);
  const bool restores = codec.kind != CodecKind::mask && codec.kind != CodecKind::step &&
                        codec.kind != CodecKind::rows && codec.kind != CodecKind::projection;
  if (!why && !packs && !restores) why = "restores nothing";
  if (why)
    return fmt::format("the CPU backend has no kernel for '{}' of '{}': it {}", text_of(codec), graph[t].name, *why);
  EXPECTS(layout_bytes(codec, graph[t]) == packed_bytes(codec, graph, graph[t]));
  return std::nullopt;
}

const CpuNetwork& network_of(const CpuNetwork& cpu, const PlannedCall& call) {
  return call.slice ? cpu.slices[*call.slice] : cpu;
}

}  // namespace

std::optional<ReplayFailure> lacks_kernel(const Problem& problem, const ReplayPlan& plan, const CpuNetwork& cpu) {
  for (std::size_t s = 0; s < plan.steps.size(); ++s) {
    for (const PlannedCall& call : plan.steps[s].calls) {
      const CpuNetwork& on = network_of(cpu, call);
      if (on.kernels[call.op.index].run) continue;
      const Op& op = on.network.graph[call.op];
      return ReplayFailure{
          fmt::format("step {} ('{}'): the CPU backend has no kernel of kind '{}'", s, op.name, op.kind)};
    }
    const std::optional<PlannedConversion>& conversion = plan.steps[s].conversion;
    if (!conversion) continue;
    if (const auto why = lacks_conversion(problem.graph, *conversion)) {
      return ReplayFailure{fmt::format("step {}: {}", s, *why)};
    }
  }
  return std::nullopt;
}

void run_call(const CpuNetwork& whole, const PlannedCall& call, const KernelArguments& given) {
  const CpuNetwork& cpu = network_of(whole, call);
  const Graph& graph = cpu.network.graph;
  const Op& op = graph[call.op];
  const auto run = [&](const KernelArguments& arguments) {
    call.packed ? run_on_packed(*call.packed, graph, op, arguments) : cpu.kernels[call.op.index].run(arguments);
  };
  if (!call.accumulates) return run(given);
  // The contribution is made in the workspace and added: the same sum in the same order as plain training's.
  const KernelArguments arguments = contribution_arguments(graph, op, given);
  run(arguments);
  for (std::size_t i = 0; i < op.outputs.size(); ++i) {
    const auto* part = static_cast<const float*>(arguments.outputs[i]);
    plain::accumulate(given.out(i), part, graph[op.outputs[i]].bytes.count / 4);
  }
}

std::optional<Score> score_of(const CpuNetwork& cpu, const PlannedCall& call, const KernelArguments& given) {
  const Op& op = cpu.network.graph[call.op];
  if (network_kind(op.kind) != OpKind::cross_entropy) return std::nullopt;
  const RowSizes sizes = row_sizes(cpu.network.graph[op.outputs[0]]);
  std::vector<std::int32_t> own;
  for (const std::int32_t row : cpu.kernels[call.op.index].rows) own.push_back(given.labels[row]);
  return score_of(given.out(), sizes.rows, sizes.columns, own.empty() ? given.labels : own.data());
}

void convert(const Graph& graph, const PlannedConversion& conversion, const Chance& chance, const std::byte* from,
             std::byte* to, std::byte* workspace) {
  const Tensor& tensor = graph[conversion.tensor];
  if (conversion.packs) return pack(conversion.codec, tensor, chance, from, to, workspace);
  unpack(conversion.codec, tensor, from, to);
}

}  // namespace plimsoll
