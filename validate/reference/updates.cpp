#include "validate/reference/updates.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "sim/core/op_kind.h"
#include "validate/reference/adam_in_8_bits.h"
#include "validate/reference/elementwise.h"
#include "validate/reference/formulas.h"

namespace plimsoll {

namespace plain {
namespace {

// Adafactor as PyTorch's program has it, at the first step of training: of a matrix's squared gradients only the means
// of its rows and columns are kept.
// Source: Shazeer, Stern, "Adafactor", ICML 2018; torch.optim.Adafactor for where its epsilons are and what matrices
// of a tensor of more dimensions are.

/// The last two dimensions of a tensor, and how many such matrices it has.
struct Matrices {
  std::int64_t count, rows, columns;
};

/// row_variances is (count, rows), column_variances (count, columns), `scratch` as large as w. `momentum`, as large as
/// w, may be null.
void adafactor(float* w, const float* g, float* row_variances, float* column_variances, float* momentum, Matrices,
               float* scratch);

/// Of a tensor of one dimension: nothing is factored.
void adafactor(float* w, const float* g, float* variances, float* momentum, std::int64_t n, float* scratch);

constexpr float first_epsilon = std::numeric_limits<float>::epsilon(), second_epsilon = 1e-3F, clipping = 1;

double root_mean_square(const float* x, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += double{x[i]} * double{x[i]};
  return std::sqrt(sum / static_cast<double>(n));
}

/// w less the update, clipped to the root mean square 1 and as large as w is; with momentum, that of its updates.
void step(float* w, const float* update, float* momentum, std::int64_t n) {
  const double size = std::max(double{second_epsilon}, root_mean_square(w, n)) * double{learning_rate};
  const double clipped = std::max(1.0, root_mean_square(update, n) / double{clipping});
  const auto rate = static_cast<float>(size / clipped);
  for (std::int64_t i = 0; i < n; ++i) {
    float change = rate * update[i];
    if (momentum != nullptr) {
      momentum[i] = first_decay * momentum[i] + (1 - first_decay) * change;
      change = momentum[i];
    }
    w[i] -= change;
  }
}

float over_root(float g, float variance) {
  return g / std::sqrt(std::max(variance, first_epsilon * first_epsilon));
}

// At step 1 the means of the squares take the place of what is kept: 1 - beta2 = 1^-0.8.
void adafactor(float* w, const float* g, float* row_variances, float* column_variances, float* momentum,
               Matrices matrices, float* scratch) {
  const auto [count, rows, columns] = matrices;
  for (std::int64_t k = 0; k < count; ++k) {
    const float* of = g + k * rows * columns;
    float *row = row_variances + k * rows, *column = column_variances + k * columns;
    std::fill_n(row, rows, 0.0F);
    std::fill_n(column, columns, 0.0F);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < columns; ++c) {
        const float square = of[r * columns + c] * of[r * columns + c];
        row[r] += square / static_cast<float>(columns);
        column[c] += square / static_cast<float>(rows);
      }
    }
    float mean = 0;
    for (std::int64_t r = 0; r < rows; ++r) mean += row[r] / static_cast<float>(rows);
    mean = std::max(mean, first_epsilon);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < columns; ++c) {
        const std::int64_t i = k * rows * columns + r * columns + c;
        scratch[i] = over_root(g[i], row[r] * column[c] / mean);
      }
    }
  }
  step(w, scratch, momentum, count * rows * columns);
}

void adafactor(float* w, const float* g, float* variances, float* momentum, std::int64_t n, float* scratch) {
  for (std::int64_t i = 0; i < n; ++i) {
    variances[i] = g[i] * g[i];
    scratch[i] = over_root(g[i], variances[i]);
  }
  step(w, scratch, momentum, n);
}

}  // namespace
}  // namespace plain

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
  if (network_kind(op.kind) != OpKind::optimizer) return {};
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
