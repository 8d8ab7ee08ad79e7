#include "validate/networks/probe_ops.h"

#include <vector>

#include "sim/core/op_kind.h"

namespace plimsoll {
namespace {

ProbeOp probe(OpKind kind, const std::vector<std::vector<std::int64_t>>& inputs,
              const std::vector<std::vector<std::int64_t>>& outputs) {
  ProbeOp made;
  made.op.kind = name_of(kind);
  const auto add = [&made](const std::vector<std::int64_t>& shape) {
    std::int64_t bytes = 4;
    for (const std::int64_t n : shape) bytes *= n;
    made.graph.tensors.push_back({.name = "t",
                                  .kind = TensorKind::activation,
                                  .bytes = Bytes{bytes},
                                  .storage = id_at<StorageId>(made.graph.storages++),
                                  .shape = shape,
                                  .dtype = "fp32"});
    return id_at<TensorId>(made.graph.tensors.size() - 1);
  };
  for (const std::vector<std::int64_t>& shape : inputs) made.op.inputs.push_back(add(shape));
  for (const std::vector<std::int64_t>& shape : outputs) made.op.outputs.push_back(add(shape));
  return made;
}

void narrow(Tensor& tensor) {
  tensor.bytes = Bytes{tensor.bytes.count / 2};
  tensor.dtype = "bf16";
}

}  // namespace

ProbeOp product_probe(std::int64_t n) {
  return probe(OpKind::linear, {{n, n}, {n, n}, {n}}, {{n, n}});
}

ProbeOp narrow_product_probe(std::int64_t n) {
  ProbeOp made = product_probe(n);
  narrow(made.graph.tensors[made.op.inputs[0].index]);
  narrow(made.graph.tensors[made.op.outputs[0].index]);
  return made;
}

ProbeOp fp8_product_probe(std::int64_t n) {
  ProbeOp made = narrow_product_probe(n);
  made.op.attributes.emplace_back("products", "fp8");
  return made;
}

ProbeOp adam_probe(std::int64_t n) {
  ProbeOp made = probe(OpKind::optimizer, {{n}, {n}, {n}, {n}}, {});
  made.op.attributes = {{"optimizer", "adam"}};
  made.signs = Signs::positive;
  return made;
}

ProbeOp sum_probe(std::int64_t n) {
  return probe(OpKind::add, {{n}, {n}}, {{n}});
}

ProbeOp tiny_probe() {
  return probe(OpKind::relu, {{16}}, {{16}});
}

}  // namespace plimsoll
