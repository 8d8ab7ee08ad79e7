// Updates of parameters, at the first step of training.

#include "validate/cpu/kernel_table.h"
#include "validate/reference/updates.h"

namespace plimsoll {

std::optional<Kernel> optimizer_kernel(const Graph& graph, const Op& op) {
  std::function<void(const KernelArguments&)> update = plain_update(graph, op);
  if (!update) return std::nullopt;
  return Kernel{std::move(update), {}};
}

}  // namespace plimsoll
