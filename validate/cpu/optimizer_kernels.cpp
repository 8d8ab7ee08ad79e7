// Updates of parameters, at the first step of training.

#include <cmath>

#include "validate/cpu/kernel_table.h"

namespace plimsoll {
namespace {

constexpr float learning_rate = 0.01F, decay = 0.9F, square_decay = 0.999F, tiny = 1e-8F;

Kernel sgd(std::int64_t n) {
  return {[n](const KernelArguments& a) {
            auto* w = static_cast<float*>(a.inputs[0]);
            for (std::int64_t i = 0; i < n; ++i) w[i] -= learning_rate * a.in(1)[i];
          },
          {}};
}

Kernel momentum(std::int64_t n) {
  return {[n](const KernelArguments& a) {
            auto *w = static_cast<float*>(a.inputs[0]), *v = static_cast<float*>(a.inputs[2]);
            for (std::int64_t i = 0; i < n; ++i) {
              v[i] = decay * v[i] + a.in(1)[i];
              w[i] -= learning_rate * v[i];
            }
          },
          {}};
}

// m = b1 m + (1 - b1) g, v = b2 v + (1 - b2) g^2, w -= rate m / (1 - b1) / (sqrt(v / (1 - b2)) + tiny) at step 1.
// Source: Kingma, Ba, "Adam: A Method for Stochastic Optimization", 2015, algorithm 1.
Kernel adam(std::int64_t n) {
  return {[n](const KernelArguments& a) {
            auto* w = static_cast<float*>(a.inputs[0]);
            auto *m = static_cast<float*>(a.inputs[2]), *v = static_cast<float*>(a.inputs[3]);
            for (std::int64_t i = 0; i < n; ++i) {
              const float g = a.in(1)[i];
              m[i] = decay * m[i] + (1 - decay) * g;
              v[i] = square_decay * v[i] + (1 - square_decay) * g * g;
              w[i] -= learning_rate * (m[i] / (1 - decay)) / (std::sqrt(v[i] / (1 - square_decay)) + tiny);
            }
          },
          {}};
}

}  // namespace

std::optional<Kernel> optimizer_kernel(const Graph& graph, const Op& op) {
  if (op.kind != "optimizer") return std::nullopt;
  const std::int64_t n = graph[op.inputs[0]].bytes.count / 4;
  const std::string_view name = attribute(op, "optimizer");
  if (name == "sgd") return sgd(n);
  if (name == "momentum") return momentum(n);
  if (name == "adam") return adam(n);
  return std::nullopt;
}

}  // namespace plimsoll
