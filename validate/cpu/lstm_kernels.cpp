// One step of a long short-term memory: state is (batch, hidden | cell), gates (batch, input | forget | candidate |
// output) before their sigmoid and tanh. cell' = f cell + i g, hidden' = o tanh(cell').

#include <cmath>

#include "validate/cpu/kernel_table.h"
#include "validate/cpu/onednn.h"

namespace plimsoll {
namespace {

struct Sizes {
  std::int64_t batch, width;
  explicit Sizes(const Tensor& gates) : batch(gates.shape[0]), width(gates.shape[1] / 4) {}
};

float sigmoid(float x) {
  return 1.0F / (1.0F + std::exp(-x));
}

/// One unit's gates, and its new cell.
struct Unit {
  float i, f, g, o, cell, squashed;

  Unit(const float* gates, std::int64_t width, std::int64_t j, float cell_before)
      : i(sigmoid(gates[j])),
        f(sigmoid(gates[width + j])),
        g(std::tanh(gates[2 * width + j])),
        o(sigmoid(gates[3 * width + j])),
        cell(f * cell_before + i * g),
        squashed(std::tanh(cell)) {}
};

/// Gradient that reaches the new cell: its own and that through hidden'.
float cell_gradient(const Unit& u, float of_hidden, float of_cell) {
  return of_cell + of_hidden * u.o * (1 - u.squashed * u.squashed);
}

Kernel cell(const Sizes& s) {
  return {[s](const KernelArguments& a) {
            for (std::int64_t b = 0; b < s.batch; ++b) {
              const float *gates = a.in(0) + b * 4 * s.width, *state = a.in(1) + b * 2 * s.width;
              float* next = a.out() + b * 2 * s.width;
              for (std::int64_t j = 0; j < s.width; ++j) {
                const Unit u(gates, s.width, j, state[s.width + j]);
                next[j] = u.o * u.squashed;
                next[s.width + j] = u.cell;
              }
            }
          },
          {}};
}

/// inputs: gradient of the next state, gates, state. Of the gates before sigmoid and tanh.
Kernel cell_gradients(const Sizes& s) {
  return {[s](const KernelArguments& a) {
            for (std::int64_t b = 0; b < s.batch; ++b) {
              const float *above = a.in(0) + b * 2 * s.width, *gates = a.in(1) + b * 4 * s.width;
              const float* state = a.in(2) + b * 2 * s.width;
              float* out = a.out() + b * 4 * s.width;
              for (std::int64_t j = 0; j < s.width; ++j) {
                const float before = state[s.width + j];
                const Unit u(gates, s.width, j, before);
                const float dc = cell_gradient(u, above[j], above[s.width + j]);
                out[j] = dc * u.g * u.i * (1 - u.i);
                out[s.width + j] = dc * before * u.f * (1 - u.f);
                out[2 * s.width + j] = dc * u.i * (1 - u.g * u.g);
                out[3 * s.width + j] = above[j] * u.squashed * u.o * (1 - u.o);
              }
            }
          },
          {}};
}

/// inputs: gradient of the gates, weight, gradient of the next state, gates, state. Hidden half: dgates W^T; cell half:
/// what reaches the new cell, times the forget gate.
Kernel state_gradient(const Sizes& s) {
  const dnnl::memory::desc from = dense({s.batch, 4 * s.width}),
                           weight = strided({4 * s.width, s.width}, {1, 4 * s.width}),
                           to = strided({s.batch, s.width}, {2 * s.width, 1});
  const dnnl::matmul::primitive_desc desc(dnnl::matmul::desc(from, weight, to), own_scratch(), cpu_engine());
  Kernel kernel =
      bound_kernel(dnnl::matmul(desc), desc.scratchpad_desc(),
                   {{DNNL_ARG_SRC, from, false, 0}, {DNNL_ARG_WEIGHTS, weight, false, 1}, {DNNL_ARG_DST, to, true, 0}});
  kernel.run = [product = kernel.run, s](const KernelArguments& a) {
    product(a);
    for (std::int64_t b = 0; b < s.batch; ++b) {
      const float *above = a.in(2) + b * 2 * s.width, *gates = a.in(3) + b * 4 * s.width;
      const float* state = a.in(4) + b * 2 * s.width;
      float* out = a.out() + b * 2 * s.width;
      for (std::int64_t j = 0; j < s.width; ++j) {
        const Unit u(gates, s.width, j, state[s.width + j]);
        out[s.width + j] = cell_gradient(u, above[j], above[s.width + j]) * u.f;
      }
    }
  };
  return kernel;
}

}  // namespace

std::optional<Kernel> lstm_kernel(const Graph& graph, const Op& op) {
  if (op.kind == "lstm_cell") return cell(Sizes(graph[op.inputs[0]]));
  if (op.kind == "lstm_cell_gradient") return cell_gradients(Sizes(graph[op.inputs[1]]));
  if (op.kind == "lstm_state_gradient") return state_gradient(Sizes(graph[op.inputs[0]]));
  return std::nullopt;
}

}  // namespace plimsoll
