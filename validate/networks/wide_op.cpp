#include "validate/networks/wide_op.h"

#include <utility>

#include "validate/networks/packing.h"

namespace plimsoll {

float* WideCopy::address(const KernelArguments& a) const {
  return static_cast<float*>(static_cast<void*>(static_cast<std::byte*>(a.scratch) + offset.count));
}

WideOp::WideOp(const Graph& from, const Op& narrow) : op(narrow) {
  const BfloatUse use = *bfloat_use(narrow);
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    const bool rounds = use == BfloatUse::product && !is_bf16(from[op.inputs[i]]);
    take(from, i, op.inputs[i], inputs, rounds);
    if (const auto in_8_bits = rounded_operand(narrow, i)) inputs.back().in_8_bits = in_8_bits;
  }
  for (std::size_t i = 0; i < op.outputs.size(); ++i) take(from, i, op.outputs[i], outputs, false);
}

void WideOp::take(const Graph& from, std::size_t index, TensorId& t, std::vector<WideCopy>& list, bool rounds) {
  Tensor tensor = from[t];
  const std::int64_t numbers = number_count(tensor);
  if (is_bf16(tensor) || rounds) {
    list.push_back({index, numbers, copies, rounds});
    tensor.bytes = Bytes{4 * numbers};
    tensor.dtype = "fp32";
    copies += aligned(tensor.bytes);
  }
  tensor.storage = id_at<StorageId>(graph.storages++);
  t = id_at<TensorId>(graph.tensors.size());
  graph.tensors.push_back(std::move(tensor));
}

KernelArguments WideOp::arguments(const KernelArguments& a, const std::vector<WideCopy>& inputs,
                                  const std::vector<WideCopy>& outputs, Bytes copies) {
  KernelArguments given = a;
  given.scratch = static_cast<std::byte*>(a.scratch) + copies.count;
  for (const WideCopy& copy : inputs) given.inputs[copy.index] = copy.address(a);
  for (const WideCopy& copy : outputs) given.outputs[copy.index] = copy.address(a);
  return given;
}

}  // namespace plimsoll
