#include "validate/reference/updates.h"

#include "validate/networks/op_kind.h"
#include "validate/reference/elementwise.h"

namespace plimsoll {

std::function<void(const KernelArguments&)> plain_update(const Graph& graph, const Op& op) {
  if (op_kind(op.kind) != OpKind::optimizer) return {};
  const std::int64_t n = graph[op.inputs[0]].bytes.count / 4;
  const std::string_view name = attribute(op, "optimizer");
  const auto numbers = [](const KernelArguments& a, std::size_t i) { return static_cast<float*>(a.inputs[i]); };
  if (name == "sgd") return [=](const KernelArguments& a) { plain::sgd(numbers(a, 0), a.in(1), n); };
  if (name == "momentum") {
    return [=](const KernelArguments& a) { plain::momentum(numbers(a, 0), a.in(1), numbers(a, 2), n); };
  }
  if (name == "adam") {
    return [=](const KernelArguments& a) { plain::adam(numbers(a, 0), a.in(1), numbers(a, 2), numbers(a, 3), n); };
  }
  return {};
}

}  // namespace plimsoll
