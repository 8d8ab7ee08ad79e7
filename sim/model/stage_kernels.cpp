#include "sim/model/stage_kernels.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "sim/ops/efficiency.h"

namespace plimsoll {
namespace {

/// Of one pass of a stage.
struct PassKernels {
  std::vector<StageKernel> kernels;
  double issued = 0;

  void add(const Graph& graph, const Op& op) {
    issued += issued_kernels(op);
    const bool is_of_weight = !op.outputs.empty() && std::ranges::all_of(op.outputs, [&](TensorId t) {
      return graph[t].kind == TensorKind::parameter_gradient;
    });
    StageKernel made{gpu_kernel(graph, op),
                     {op.flops.value_or(Flops{}), op.bytes_moved.value_or(Bytes{}), op.traffic, op.launches},
                     1,
                     is_backward(op.phase) && is_of_weight};
    const auto like = std::ranges::find_if(kernels, [&](const StageKernel& each) {
      return each.kernel == made.kernel && each.work == made.work && each.of_weight == made.of_weight;
    });
    if (like == kernels.end()) {
      kernels.push_back(std::move(made));
    } else {
      ++like->count;
    }
  }
};

struct Kernels {
  StageKernels list;
  double issued;
};

}  // namespace

void add_kernels(Chain& chain, const Graph& graph, const std::function<std::uint32_t(std::uint32_t)>& stage_of) {
  std::map<std::pair<std::uint32_t, bool>, PassKernels> passes;
  for (const Op& op : graph.ops) {
    if (!op.is_view && op.phase != Phase::update) passes[{op.stage, is_backward(op.phase)}].add(graph, op);
  }
  std::map<std::pair<std::uint32_t, bool>, Kernels> made;
  for (auto& [of, pass] : passes) made[of] = {StageKernels(std::move(pass.kernels)), pass.issued};
  for (std::uint32_t i = 0; i < chain.stages.size(); ++i) {
    Stage& stage = chain.stages[i];
    const Kernels &forward = made[{stage_of(i), false}], &backward = made[{stage_of(i), true}];
    stage.forward_made_of = forward.list;
    stage.backward_made_of = backward.list;
    stage.forward_kernels = forward.issued;
    stage.backward_kernels = backward.issued;
  }
}

}  // namespace plimsoll
