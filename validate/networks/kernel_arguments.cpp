#include "validate/networks/kernel_arguments.h"

#include <cmath>

#include <algorithm>
#include <charconv>

#include "sim/core/expects.h"
#include "sim/core/optimizer.h"
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

std::int64_t number_count(const Tensor& tensor) {
  return tensor.bytes.count / bytes_of_dtype(tensor.dtype).value_or(4);  // tokens have four, too
}

bool is_bf16(const Tensor& tensor) {
  return tensor.dtype == "bf16";
}

const Tensor* first_in_bf16(const Graph& graph) {
  const auto found = std::ranges::find_if(graph.tensors, is_bf16);
  return found == graph.tensors.end() ? nullptr : &*found;
}

bool reads_or_makes_bf16(const Graph& graph, const Op& op) {
  const auto is_narrow = [&](TensorId t) { return is_bf16(graph[t]); };
  return std::ranges::any_of(op.inputs, is_narrow) || std::ranges::any_of(op.outputs, is_narrow);
}

RowSizes row_sizes(const Tensor& tensor) {
  const std::int64_t columns = tensor.shape.back();
  return {number_count(tensor) / columns, columns};
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
