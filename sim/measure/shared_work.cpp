#include "sim/measure/shared_work.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace plimsoll {
namespace {

struct Priced {
  double sum = 0;            ///< of the ops' least prices
  std::vector<double> load;  ///< by class: seconds that each of its devices works at these prices
};

void add_priced(std::span<const OnEachClass> ops, double runs, const DeviceClasses& classes,
                const std::vector<double>& prices, Priced& made) {
  for (const OnEachClass& op : ops) {
    std::size_t cheapest = 0;
    for (std::size_t c = 1; c < prices.size(); ++c) {
      if (prices[c] * op[c].value < prices[cheapest] * op[cheapest].value) cheapest = c;
    }
    made.sum += runs * prices[cheapest] * op[cheapest].value;
    made.load[cheapest] += runs * op[cheapest].value / static_cast<double>(classes.count[cheapest]);
  }
}

Seconds sum_of_least(std::span<const OnEachClass> ops) {
  Seconds sum;
  for (const OnEachClass& op : ops) sum += *std::ranges::min_element(op);
  return sum;
}

}  // namespace

Seconds shared_work(const IterationWork& work, const DeviceClasses& classes, std::size_t devices) {
  const Seconds all = work.micro_batches * sum_of_least(work.micro_batch) + sum_of_least(work.updates);
  double bound = all.value / static_cast<double>(devices);
  if (classes.one.size() == 1) return Seconds{bound};
  std::vector<double> prices(classes.one.size(), 1 / static_cast<double>(classes.of.size()));
  constexpr int rounds = 60;
  for (int round = 1; round <= rounds; ++round) {
    Priced now{0, std::vector<double>(prices.size(), 0)};
    add_priced(work.micro_batch, work.micro_batches, classes, prices, now);
    add_priced(work.updates, 1, classes, prices, now);
    bound = std::max(bound, now.sum);
    double mean = 0, sum = 0;
    for (std::size_t c = 0; c < prices.size(); ++c) {
      mean += prices[c] * static_cast<double>(classes.count[c]) * now.load[c];
    }
    if (!(mean > 0)) break;
    for (std::size_t c = 0; c < prices.size(); ++c) {  // what is loaded more costs more
      prices[c] *= std::exp((now.load[c] / mean - 1) / (2 + round));
      sum += prices[c] * static_cast<double>(classes.count[c]);
    }
    for (double& price : prices) price /= sum;
  }
  return Seconds{bound};
}

}  // namespace plimsoll
