#include "validate/cpu/cpu_network.h"

namespace plimsoll {

CpuNetwork with_kernels(Network network) {
  use_one_thread();
  CpuNetwork made{std::move(network), {}};
  for (Op& op : made.network.graph.ops) {
    const Kernel& kernel = made.kernels.emplace_back(make_kernel(made.network.graph, op).value_or(Kernel{}));
    state_workspace(made.network.graph, op, kernel.scratch);
  }
  for (std::shared_ptr<const Network>& slice : made.network.slices) {
    made.slices.push_back(with_kernels(*slice));
    slice = std::make_shared<const Network>(made.slices.back().network);  // with workspaces
  }
  return made;
}

}  // namespace plimsoll
