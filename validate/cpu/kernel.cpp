#include "validate/cpu/kernel.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <charconv>
#include <dnnl.hpp>

#include "sim/core/expects.h"
#include "validate/cpu/kernel_table.h"

namespace plimsoll {

std::optional<Kernel> make_kernel(const Graph& graph, const Op& op) {
  for (const auto make : {product_kernel, convolution_kernel, normalization_kernel, elementwise_kernel, loss_kernel,
                          lstm_kernel, optimizer_kernel}) {
    if (std::optional<Kernel> kernel = make(graph, op)) return kernel;
  }
  return std::nullopt;
}

std::string_view attribute(const Op& op, std::string_view name) {
  const auto found = std::ranges::find(op.attributes, name, [](const auto& a) { return std::string_view(a.first); });
  EXPECTS(found != op.attributes.end());
  return found->second;
}

std::int64_t whole_attribute(const Op& op, std::string_view name) {
  const std::string_view text = attribute(op, name);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  EXPECTS(error == std::errc{} && end == text.data() + text.size());
  return value;
}

void use_one_thread() {
  omp_set_num_threads(1);
}

std::string kernel_library() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("oneDNN {}.{}.{}", version->major, version->minor, version->patch);
}

}  // namespace plimsoll
