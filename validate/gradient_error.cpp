#include "validate/gradient_error.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "sim/core/expects.h"

namespace plimsoll {
namespace {

/// Sums over the numbers of two vectors.
struct Products {
  double of_run = 0, of_exact = 0, of_both = 0, of_difference = 0;

  void add(float run, float exact) {
    const double a = run, b = exact;
    of_run += a * a;
    of_exact += b * b;
    of_both += a * b;
    of_difference += (a - b) * (a - b);
  }

  GradientError error() const {
    if (of_difference == 0) return {};
    if (of_exact == 0) return {std::numeric_limits<double>::infinity(), 0};
    return {std::sqrt(of_difference / of_exact), of_run == 0 ? 0 : of_both / std::sqrt(of_run) / std::sqrt(of_exact)};
  }
};

}  // namespace

GradientErrors gradient_errors(const Graph& graph, const Replayed& run, const Replayed& exact) {
  GradientErrors errors;
  Products whole;
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.kind != TensorKind::parameter_gradient) continue;
    const std::vector<std::byte>&made = run.values.at(tensor.name), &right = exact.values.at(tensor.name);
    EXPECTS(made.size() == right.size() && made.size() % sizeof(float) == 0);
    Products products;
    for (std::size_t i = 0; i < made.size(); i += sizeof(float)) {
      float a = 0, b = 0;
      std::memcpy(&a, &made[i], sizeof a);
      std::memcpy(&b, &right[i], sizeof b);
      products.add(a, b);
      whole.add(a, b);
    }
    errors.of[tensor.name] = products.error();
  }
  errors.whole = whole.error();
  return errors;
}

}  // namespace plimsoll
