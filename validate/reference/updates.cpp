#include "validate/reference/updates.h"

#include "validate/networks/op_kind.h"
#include "validate/reference/adafactor.h"
#include "validate/reference/adam_in_8_bits.h"
#include "validate/reference/elementwise.h"

namespace plimsoll {
namespace {

using Update = std::function<void(const KernelArguments&)>;

float* numbers(const KernelArguments& a, std::size_t i) {
  return static_cast<float*>(a.inputs[i]);
}

/// Small parameters, and those that are to stay so, have states of fp32.
Update adam_update_in_8_bits(const Graph& graph, const Op& op, std::int64_t n) {
  if (op.inputs.size() != 4 || graph[op.inputs[2]].bytes != graph[op.inputs[3]].bytes) return {};
  const std::int64_t bytes = graph[op.inputs[2]].bytes.count;
  if (bytes == 4 * n)
    return [=](const KernelArguments& a) {
      plain::adam(numbers(a, 0), a.in(1), numbers(a, 2), numbers(a, 3), n, a.update);
    };
  if (bytes != plain::bytes_of_8_bit_state(n)) return {};
  return [=](const KernelArguments& a) {
    const auto codes = [&](std::size_t i) { return static_cast<unsigned char*>(a.inputs[i]); };
    plain::adam_in_8_bits(numbers(a, 0), a.in(1), codes(2), codes(3), n, a.update);
  };
}

/// The update of a parameter is made in memory of its own: a host's step has no workspace.
Update adafactor_update(const Graph& graph, const Op& op, std::int64_t n) {
  const std::vector<std::int64_t>& shape = graph[op.inputs[0]].shape;
  const bool is_factored = shape.size() > 1;
  const std::size_t factors = is_factored ? 2 : 1, states = op.inputs.size() - 2;
  if (states < factors || states > factors + 1) return {};
  const bool has_momentum = states > factors;
  const auto momentum = [=](const KernelArguments& a) { return has_momentum ? numbers(a, 2 + factors) : nullptr; };
  if (!is_factored) {
    return [=](const KernelArguments& a) {
      std::vector<float> update(static_cast<std::size_t>(n));
      plain::adafactor(numbers(a, 0), a.in(1), numbers(a, 2), momentum(a), n, update.data());
    };
  }
  const std::int64_t columns = shape.back(), rows = shape[shape.size() - 2];
  return [=](const KernelArguments& a) {
    std::vector<float> update(static_cast<std::size_t>(n));
    plain::adafactor(numbers(a, 0), a.in(1), numbers(a, 2), numbers(a, 3), momentum(a),
                     {n / (rows * columns), rows, columns}, update.data());
  };
}

}  // namespace

std::function<void(const KernelArguments&)> plain_update(const Graph& graph, const Op& op) {
  if (op_kind(op.kind) != OpKind::optimizer) return {};
  const std::int64_t n = graph[op.inputs[0]].bytes.count / 4;
  const std::string_view name = attribute(op, "optimizer");
  if (name == "sgd") return [=](const KernelArguments& a) { plain::sgd(numbers(a, 0), a.in(1), n, a.update); };
  if (name == "momentum") {
    return [=](const KernelArguments& a) { plain::momentum(numbers(a, 0), a.in(1), numbers(a, 2), n, a.update); };
  }
  if (name == "adam") {
    return [=](const KernelArguments& a) {
      plain::adam(numbers(a, 0), a.in(1), numbers(a, 2), numbers(a, 3), n, a.update);
    };
  }
  if (name == "adam8bit") return adam_update_in_8_bits(graph, op, n);
  if (name == "adafactor") return adafactor_update(graph, op, n);
  return {};
}

}  // namespace plimsoll
