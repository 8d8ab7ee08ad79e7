// Updates of parameters.

#include "validate/cpu/kernels/kernel_table.h"
#include "validate/reference/updates.h"

namespace plimsoll::cpu_kernels {

Kernel optimizer(const Graph& graph, const Op& op) {
  return {plain_update(graph, op), {}};
}

}  // namespace plimsoll::cpu_kernels
