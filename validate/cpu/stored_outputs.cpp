#include "validate/cpu/stored_outputs.h"

#include <utility>

#include "sim/core/expects.h"
#include "validate/cpu/cpu_network.h"
#include "validate/networks/initial_values.h"

namespace plimsoll {

const Network& first_of(const Network& network) {
  return network.before == nullptr ? network : first_of(*network.before);
}

std::vector<std::vector<std::byte>> inputs_of(const Network& network, std::vector<std::vector<std::byte>> given) {
  if (network.before == nullptr) return given;
  const CpuNetwork before = with_kernels(*network.before);
  const Graph& graph = before.network.graph;
  std::vector<std::vector<std::byte>> values;  // by tensor
  for (const Tensor& tensor : graph.tensors) values.push_back(initial_value(tensor));
  std::vector<std::vector<std::byte>> stored;
  for (const std::vector<std::byte>& input : inputs_of(before.network, std::move(given))) {
    values[before.network.boundaries.front().index] = input;
    for (std::size_t o = 0; o < graph.ops.size(); ++o) {
      const Op& op = graph.ops[o];
      KernelArguments arguments;
      for (const TensorId t : op.inputs) arguments.inputs.push_back(values[t.index].data());
      for (const TensorId t : op.outputs) arguments.outputs.push_back(values[t.index].data());
      std::vector<std::byte> scratch(static_cast<std::size_t>(op.workspace.count) + 64);
      arguments.scratch = scratch.data();
      EXPECTS(before.kernels[o].run);
      before.kernels[o].run(arguments);
    }
    stored.push_back(values[before.network.boundaries.back().index]);
  }
  return stored;
}

}  // namespace plimsoll
