#include "validate/cpu/kernel.h"

#include <fmt/format.h>
#include <omp.h>

#include <dnnl.hpp>

#include "validate/cpu/kernel_table.h"

namespace plimsoll {

std::optional<Kernel> make_kernel(const Graph& graph, const Op& op) {
  for (const auto make : {product_kernel, convolution_kernel, normalization_kernel, elementwise_kernel, loss_kernel,
                          lstm_kernel, optimizer_kernel}) {
    if (std::optional<Kernel> kernel = make(graph, op)) return kernel;
  }
  return std::nullopt;
}

void use_one_thread() {
  omp_set_num_threads(1);
}

std::string kernel_library() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("oneDNN {}.{}.{}", version->major, version->minor, version->patch);
}

}  // namespace plimsoll
