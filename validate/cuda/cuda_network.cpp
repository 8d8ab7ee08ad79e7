#include "validate/cuda/cuda_network.h"

#include "validate/reference/updates.h"

namespace plimsoll {

CudaNetwork with_cuda_kernels(Network network, const Libraries& libraries) {
  CudaNetwork made;
  made.network = std::move(network);
  Graph& graph = made.network.graph;
  for (Op& op : graph.ops) {
    made.kernels.push_back(make_cuda_kernel(graph, op, libraries).value_or(CudaKernel{}));
    made.host_kernels.push_back(plain_update(graph, op));
    state_workspace(graph, op, made.kernels.back().scratch);
  }
  return made;
}

}  // namespace plimsoll
