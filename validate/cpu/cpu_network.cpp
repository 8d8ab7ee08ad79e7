#include "validate/cpu/cpu_network.h"

#include "validate/networks/packing.h"

namespace plimsoll {

CpuNetwork with_kernels(Network network) {
  use_one_thread();
  CpuNetwork made{std::move(network), {}};
  for (Op& op : made.network.graph.ops) {
    const Kernel& kernel = made.kernels.emplace_back(make_kernel(made.network.graph, op).value_or(Kernel{}));
    op.workspace = kernel.scratch;
    Bytes contributions;
    for (const TensorId t : op.outputs) {
      const Tensor& tensor = made.network.graph[t];
      if (tensor.kind == TensorKind::parameter_gradient) contributions += aligned(tensor.bytes);
    }
    if (contributions > Bytes{0}) op.accumulate_workspace = contributions + op.workspace;
  }
  return made;
}

}  // namespace plimsoll
