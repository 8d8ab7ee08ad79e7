#include "tests/strategies/rematerialization/published_rotor.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace plimsoll {

namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();

class Program {
 public:
  Program(const ChainModel& model, std::int64_t unit, std::int64_t memory)
      : n_{model.stages()}, memory_{memory}, model_{model}, opt_(n_ * n_) {
    const auto slots = [unit](const std::vector<Bytes>& sizes) {
      std::vector<std::int64_t> rounded;
      for (const Bytes size : sizes) rounded.push_back((size.count + unit - 1) / unit);
      return rounded;
    };
    x_ = slots(model.x);
    saved_ = slots(model.saved);
    gradient_ = slots(model.input_gradient);
    gradient_.push_back(0);
    forward_ = slots(model.forward_workspace);
    nograd_ = slots(model.nograd_workspace);
    backward_ = slots(model.backward_workspace);
    new_gradients_ = slots(model.new_gradients);
    later_.assign(n_, 0);
    for (std::size_t l = n_ - 1; l-- > 0;) later_[l] = later_[l + 1] + new_gradients_[l + 1];
  }

  double least() {
    for (std::size_t length = 0; length < n_; ++length) {
      for (std::size_t i = 0; i + length < n_; ++i) fill(i, i + length);
    }
    return at(0, n_ - 1)[static_cast<std::size_t>(memory_)];
  }

 private:
  std::vector<double>& at(std::size_t i, std::size_t l) { return opt_[i * n_ + l]; }

  void fill(std::size_t i, std::size_t l) {
    std::vector<double>& best = at(i, l);
    best.assign(static_cast<std::size_t>(memory_ + 1), infinite);
    const std::int64_t held = gradient_[l + 1] + later_[l];
    const std::int64_t all = std::max(held + saved_[i] + forward_[i], gradient_[i] + gradient_[i + 1] + saved_[i] +
                                                                          backward_[i] + later_[i] + new_gradients_[i]);
    const double both = model_.forward[i].value + model_.backward[i].value;
    for (std::int64_t m = all; m <= memory_; ++m) {
      const auto here = static_cast<std::size_t>(m);
      if (i == l) best[here] = both;
      if (i < l && m >= saved_[i]) best[here] = both + at(i + 1, l)[static_cast<std::size_t>(m - saved_[i])];
    }
    double time = 0;
    std::int64_t null = 0;
    for (std::size_t j = i + 1; j <= l; ++j) {
      const std::size_t k = j - 1;
      time += model_.nograd[k].value;
      null = std::max(null, held + (k > i ? x_[k] : 0) + x_[k + 1] + nograd_[k]);
      const std::vector<double>&late = at(j, l), &early = at(i, j - 1);
      for (std::int64_t m = std::max(null, x_[j]); m <= memory_; ++m) {
        const auto here = static_cast<std::size_t>(m);
        best[here] = std::min(best[here], time + late[static_cast<std::size_t>(m - x_[j])] + early[here]);
      }
    }
  }

  std::size_t n_;
  std::int64_t memory_;
  const ChainModel& model_;
  std::vector<std::int64_t> x_, saved_, gradient_, forward_, nograd_, backward_, new_gradients_, later_;
  std::vector<std::vector<double>> opt_;
};

}  // namespace

std::optional<double> published_rotor(const ChainModel& model, std::int64_t budget, std::int64_t slots) {
  const std::int64_t unit = (budget - model.resident.count) / slots;
  if (unit <= 0) return std::nullopt;
  const std::int64_t memory = slots - (model.x[0].count + unit - 1) / unit;
  if (memory < 0) return std::nullopt;
  const double least = Program(model, unit, memory).least();
  return least < infinite ? std::optional(least) : std::nullopt;
}

}  // namespace plimsoll
