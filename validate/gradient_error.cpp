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

  void add(double a, double b) {
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

std::vector<float> numbers_of(const Replayed& run, const std::string& name) {
  const std::vector<std::byte>& bytes = run.values.at(name);
  EXPECTS(bytes.size() % sizeof(float) == 0);
  std::vector<float> numbers(bytes.size() / sizeof(float));
  if (!numbers.empty()) std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

std::map<std::string, std::vector<float>> gradients_of(const Graph& graph, const Replayed& run) {
  std::map<std::string, std::vector<float>> values;
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.kind == TensorKind::parameter_gradient) values[tensor.name] = numbers_of(run, tensor.name);
  }
  return values;
}

/// `scale`: of the first one's numbers.
template <class Number>
GradientErrors errors_between(const std::map<std::string, std::vector<Number>>& values, double scale,
                              const std::map<std::string, std::vector<float>>& exact) {
  GradientErrors errors;
  Products whole;
  for (const auto& [name, right] : exact) {
    const std::vector<Number>& made = values.at(name);
    EXPECTS(made.size() == right.size());
    Products products;
    for (std::size_t i = 0; i < made.size(); ++i) {
      products.add(scale * double{made[i]}, double{right[i]});
      whole.add(scale * double{made[i]}, double{right[i]});
    }
    errors.of[name] = products.error();
  }
  errors.whole = whole.error();
  return errors;
}

/// Of the errors that `pick` takes.
template <class Pick>
GradientError mean_of(const std::vector<GradientErrors>& all, const Pick& pick) {
  GradientError sum{0, 0};
  for (const GradientErrors& each : all) {
    sum.relative += pick(each).relative;
    sum.cosine += pick(each).cosine;
  }
  const auto count = static_cast<double>(all.size());
  return {sum.relative / count, sum.cosine / count};
}

template <class Pick>
double deviation_of(const std::vector<GradientErrors>& all, double mean, const Pick& pick) {
  if (all.size() < 2) return 0;
  double squares = 0;
  for (const GradientErrors& each : all) squares += std::pow(pick(each).relative - mean, 2);
  return std::sqrt(squares / static_cast<double>(all.size() - 1));
}

}  // namespace

GradientErrors gradient_errors(const Graph& graph, const Replayed& run, const Replayed& exact) {
  return errors_between(gradients_of(graph, run), 1, gradients_of(graph, exact));
}

ErrorMeter::ErrorMeter(const Graph& graph, const Replayed& exact) : graph_(graph), exact_(gradients_of(graph, exact)) {
  for (const auto& [name, numbers] : exact_) sums_[name].resize(numbers.size());
}

void ErrorMeter::add_run(const Replayed& run) {
  const Values values = gradients_of(graph_, run);
  runs_.push_back(errors_between(values, 1, exact_));
  for (const auto& [name, numbers] : values) {
    std::vector<double>& sum = sums_.at(name);
    for (std::size_t i = 0; i < numbers.size(); ++i) sum[i] += double{numbers[i]};
  }
}

void ErrorMeter::add_batch(const Replayed& run) {
  batches_.push_back(errors_between(gradients_of(graph_, run), 1, exact_));
}

MeasuredErrors ErrorMeter::errors() const {
  EXPECTS(!runs_.empty() && !batches_.empty());
  const GradientErrors of_mean = errors_between(sums_, 1 / static_cast<double>(runs_.size()), exact_);
  const auto measured = [&](const auto& pick) {
    MeasuredError error{.mean = mean_of(runs_, pick), .noise = mean_of(batches_, pick)};
    error.deviation = deviation_of(runs_, error.mean.relative, pick);
    error.bias = pick(of_mean).relative;
    return error;
  };
  MeasuredErrors all{.runs = runs_.size(), .batches = batches_.size()};
  for (const auto& exact : exact_) {
    const auto& name = exact.first;
    all.of[name] = measured([&](const GradientErrors& each) -> const GradientError& { return each.of.at(name); });
  }
  all.whole = measured([](const GradientErrors& each) -> const GradientError& { return each.whole; });
  return all;
}

}  // namespace plimsoll
