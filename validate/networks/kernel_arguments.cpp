#include "validate/networks/kernel_arguments.h"

#include <cmath>

#include <algorithm>
#include <charconv>

#include "sim/core/expects.h"
#include "validate/networks/packing.h"

namespace plimsoll {

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

KernelArguments contribution_arguments(const Graph& graph, const Op& op, const KernelArguments& sums) {
  KernelArguments arguments = sums;
  auto* scratch = static_cast<std::byte*>(sums.scratch);
  for (std::size_t i = 0; i < op.outputs.size(); ++i) {
    arguments.outputs[i] = scratch;
    scratch += aligned(graph[op.outputs[i]].bytes).count;
  }
  arguments.scratch = scratch;
  return arguments;
}

void state_workspace(const Graph& graph, Op& op, Bytes scratch) {
  op.workspace = scratch;
  Bytes contributions;
  for (const TensorId t : op.outputs) {
    if (graph[t].kind == TensorKind::parameter_gradient) contributions += aligned(graph[t].bytes);
  }
  if (contributions > Bytes{0}) op.accumulate_workspace = contributions + scratch;
}

RowSizes row_sizes(const Tensor& tensor) {
  const std::int64_t columns = tensor.shape.back();
  return {tensor.bytes.count / 4 / columns, columns};
}

AttentionSizes::AttentionSizes(const Tensor& qkv, const Op& op)
    : batch(qkv.shape[0]),
      sequence(qkv.shape[1]),
      width(qkv.shape[2] / 3),
      heads(whole_attribute(op, "heads")),
      size(width / heads) {}

float AttentionSizes::scale() const {
  return 1.0F / std::sqrt(static_cast<float>(size));
}

}  // namespace plimsoll
