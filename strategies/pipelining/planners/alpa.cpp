#include "strategies/pipelining/planners/alpa.h"

#include <algorithm>

namespace plimsoll {
namespace {

constexpr double unreachable = std::numeric_limits<double>::infinity();

class AlpaSearch {
 public:
  explicit AlpaSearch(const AlpaProblem& problem) : problem_(problem), from_(problem.layers) {
    for (std::uint32_t k = 0; k < problem.stages.size(); ++k) {
      from_[problem.stages[k].first].push_back(k);
      bounds_.push_back(problem.stages[k].seconds);
    }
    std::ranges::sort(bounds_);
    bounds_.erase(std::unique(bounds_.begin(), bounds_.end()), bounds_.end());
    behind_limited_ = std::ranges::any_of(
        problem.stages, [&](const AlpaProblem::Stage& stage) { return stage.most_behind < problem.layers; });
  }

  std::optional<AlpaPlan> plan() {
    if (bounds_.empty()) return std::nullopt;
    const std::size_t last = bounds_.size() - 1;
    const double least = sum_within(last);
    if (least == unreachable) return std::nullopt;
    std::size_t impossible = 0, possible = last;  // the first bound with a plan
    if (sum_within(0) < unreachable) {
      possible = 0;
    } else {
      while (possible - impossible > 1) {
        const std::size_t middle = (impossible + possible) / 2;
        (sum_within(middle) < unreachable ? possible : impossible) = middle;
      }
    }
    search_between(possible, sum_within(possible), last, least);
    best_.bounds = tried_;
    return best_;
  }

 private:
  std::size_t cell(std::uint32_t stages, std::uint32_t layer, std::uint32_t devices) const {
    return (std::size_t{stages} * (problem_.layers + 1) + layer) * (problem_.devices + 1) + devices;
  }

  /// The least sum of stages' times where none takes more than the bound; keeps the plan if it is the best so far.
  double sum_within(std::size_t bound) {
    ++tried_;
    const std::uint32_t n = problem_.layers, all = problem_.devices;
    // How many stages there are matters only where memory limits how many may be behind one.
    const std::uint32_t most = behind_limited_ ? std::min(n, all) : 1;
    sums_.assign(cell(most + 1, 0, 0), unreachable);
    taken_.assign(sums_.size(), 0);
    sums_[cell(0, n, 0)] = 0;
    if (behind_limited_) {
      for (std::uint32_t s = 1; s <= most; ++s) extend(s, s - 1, bound);
    } else {
      sums_[cell(1, n, 0)] = 0;
      extend(1, 1, bound);
    }
    double best = unreachable;
    std::uint32_t best_count = 0;
    for (std::uint32_t s = 1; s <= most; ++s) {
      if (sums_[cell(s, 0, all)] < best) best = sums_[cell(s, 0, all)], best_count = s;
    }
    if (best < unreachable) keep(best_count);
    return best;
  }

  /// From sums with `rest` stages those with one more in front, which `stages` counts.
  void extend(std::uint32_t stages, std::uint32_t rest, std::size_t bound) {
    for (std::uint32_t layer = problem_.layers; layer-- > 0;) {
      for (const std::uint32_t k : from_[layer]) {
        const AlpaProblem::Stage& stage = problem_.stages[k];
        if (stage.seconds > bounds_[bound] || stage.devices > problem_.devices) continue;
        if (behind_limited_ && rest > stage.most_behind) continue;
        const double* const behind = &sums_[cell(rest, stage.last, 0)];
        double* const sums = &sums_[cell(stages, layer, stage.devices)];
        std::uint32_t* const taken = &taken_[cell(stages, layer, stage.devices)];
        for (std::uint32_t d = 0; d + stage.devices <= problem_.devices; ++d) {
          if (behind[d] + stage.seconds < sums[d] && fits(stage, d)) {
            sums[d] = behind[d] + stage.seconds;
            taken[d] = k;
          }
        }
      }
    }
  }

  /// With so many devices behind it.
  bool fits(const AlpaProblem::Stage& stage, std::uint32_t behind) const {
    const std::uint32_t in_flight = 1 + (behind + stage.devices - 1) / stage.devices;
    return !problem_.fits || problem_.fits(stage.first, stage.last, in_flight);
  }

  void keep(std::uint32_t stages) {
    AlpaPlan plan;
    double sum = 0, longest = 0;
    std::uint32_t devices = problem_.devices;
    for (std::uint32_t layer = 0; layer < problem_.layers;) {
      const std::uint32_t k = taken_[cell(stages, layer, devices)];
      const AlpaProblem::Stage& stage = problem_.stages[k];
      plan.stages.push_back(k);
      sum += stage.seconds;
      longest = std::max(longest, stage.seconds);
      layer = stage.last;
      devices -= stage.devices;
      if (behind_limited_) --stages;
    }
    plan.seconds = sum + (problem_.micro_batches - 1) * longest;
    if (best_.stages.empty() || plan.seconds < best_.seconds) best_ = std::move(plan);
  }

  /// Bounds strictly between two whose sums are known: none where the sum does not fall or cannot fall enough.
  void search_between(std::size_t low, double low_sum, std::size_t high, double high_sum) {
    if (high - low < 2 || high_sum >= low_sum) return;
    if (high_sum + (problem_.micro_batches - 1) * bounds_[low + 1] >= best_.seconds) return;
    const std::size_t middle = low + (high - low) / 2;
    const double sum = sum_within(middle);
    search_between(low, low_sum, middle, sum);
    search_between(middle, sum, high, high_sum);
  }

  const AlpaProblem& problem_;
  std::vector<std::vector<std::uint32_t>> from_;  ///< stages by their first layer
  std::vector<double> bounds_;                    ///< all times of stages, ascending
  bool behind_limited_ = false;
  std::vector<double> sums_;
  std::vector<std::uint32_t> taken_;
  AlpaPlan best_;
  std::uint32_t tried_ = 0;
};

}  // namespace

std::optional<AlpaPlan> plan_alpa(const AlpaProblem& problem) {
  return AlpaSearch(problem).plan();
}

}  // namespace plimsoll
