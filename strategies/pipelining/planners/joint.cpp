#include "strategies/pipelining/planners/joint.h"

#include "sim/core/tolerance.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace plimsoll {
namespace {

constexpr double no_end = std::numeric_limits<double>::infinity();

class JointSearch {
 public:
  explicit JointSearch(const JointProblem& problem)
      : p_(problem), n_(static_cast<std::uint32_t>(problem.least.size())) {
    until_.push_back(0);
    for (const double seconds : problem.least) until_.push_back(until_.back() + seconds);
    cells_.resize(std::size_t{p_.stages + 1} * (n_ + 1));
  }

  std::vector<JointPlan> plans(double beyond) {
    const std::optional<JointPlan> first = first_within_some();
    if (!first) return {};
    std::vector<JointPlan> found;
    double fastest = first->seconds;
    for (std::optional<JointPlan> next = within(longest_period(fastest * (1 + beyond))); next;) {
      fastest = std::min(fastest, next->seconds);
      const double shorter = std::min(std::nextafter(next->period, 0), next->period * (1 - p_.precision));
      found.push_back(*std::move(next));
      next = within(shorter);
    }
    std::erase_if(found, [&](const JointPlan& plan) { return plan.seconds > fastest * (1 + beyond); });
    std::ranges::stable_sort(found, {}, &JointPlan::seconds);
    return found;
  }

 private:
  struct Cell {
    double latency = no_end;
    std::uint32_t next = 0, in_flight = 0;
    double period = 0;
  };

  Cell& cell(std::uint32_t stage, std::uint32_t first) { return cells_[std::size_t{stage} * (n_ + 1) + first]; }

  /// A plan with a period not far from the shortest, if there is any plan.
  std::optional<JointPlan> first_within_some() {
    constexpr double step = 1.05;
    for (double period = until_[n_] / p_.stages; period > 0 && period < 8 * until_[n_]; period *= step) {
      if (std::optional<JointPlan> plan = within(period)) return plan;
    }
    return within(no_end);
  }

  /// With a longer one no iteration takes as little as `seconds`.
  double longest_period(double seconds) const {
    double latency = until_[n_];
    std::vector<double> transfers;
    for (std::uint32_t i = 1; i < n_; ++i) transfers.push_back(p_.sent[i] + p_.returned[i]);
    std::ranges::sort(transfers);
    for (std::uint32_t s = 0; s + 1 < p_.stages; ++s) latency += transfers[s];
    return p_.micro_batches == 1 ? no_end : (1 + model_tolerance) * (seconds - latency) / (p_.micro_batches - 1);
  }

  std::optional<JointPlan> within(double period) {
    std::ranges::fill(cells_, Cell{});
    cell(p_.stages, n_).latency = 0;
    for (std::uint32_t stage = p_.stages; stage-- > 0;) {
      for (std::uint32_t first = stage; first < n_; ++first) fill(stage, first, period);
    }
    if (cell(0, 0).latency == no_end) return std::nullopt;
    JointPlan plan;
    plan.latency = cell(0, 0).latency;
    for (std::uint32_t stage = 0, first = 0; stage < p_.stages; ++stage) {
      const Cell& here = cell(stage, first);
      plan.first.push_back(first);
      plan.in_flight.push_back(here.in_flight);
      plan.period = std::max(plan.period, here.period);
      first = here.next;
    }
    plan.seconds = plan.latency + (p_.micro_batches - 1) * plan.period;
    return plan;
  }

  /// The least latency of the layers from `first` on as this stage and those behind it.
  void fill(std::uint32_t stage, std::uint32_t first, double period) {
    const double most = period * (1 + model_tolerance);
    // What is in front, and what is behind, takes its stages a period each at most.
    if ((stage == 0) != (first == 0) || until_[first] > stage * most) return;
    if (until_[n_] - until_[first] > (p_.stages - stage) * most) return;
    const std::uint32_t left = p_.stages - stage - 1;
    for (std::uint32_t last = left == 0 ? n_ : first + 1; last + left <= n_; ++last) {
      const double least = until_[last] - until_[first];
      if (least > most) return;
      const Cell behind = cell(stage + 1, last);
      if (behind.latency == no_end) continue;
      double transfers = 0, longest = 0;
      if (last < n_) {
        transfers = p_.sent[last] + p_.returned[last];
        longest = std::max(p_.sent[last], p_.returned[last]);
      }
      if (longest > period || least + transfers + behind.latency >= cell(stage, first).latency) continue;
      take(stage, first, last, transfers + behind.latency, longest, period);
    }
  }

  void take(std::uint32_t stage, std::uint32_t first, std::uint32_t last, double behind, double longest,
            double period) {
    Cell& best = cell(stage, first);
    const bool is_fixed = !p_.in_flight.empty();
    const double turns = (until_[last] - until_[first] + behind) / period;
    std::uint32_t k = is_fixed ? p_.in_flight[stage] : 1;
    if (!is_fixed && turns > 1)
      k = std::min(p_.micro_batches, static_cast<std::uint32_t>(std::ceil(turns * (1 - model_tolerance))));
    for (; k <= p_.micro_batches; ++k) {
      const std::optional<double> seconds = p_.seconds(first, last, stage, k);
      if (!seconds || *seconds > period || *seconds + behind >= best.latency) return;
      const bool keeps_all = is_fixed || k == p_.micro_batches;
      const double turn = keeps_all ? 0 : (*seconds + behind) / k;
      if (turn <= period) {
        best = {*seconds + behind, last, k, std::max({*seconds, longest, turn})};
        return;
      }
    }
  }

  const JointProblem& p_;
  std::uint32_t n_;
  std::vector<double> until_;  ///< of `least`, before each layer
  std::vector<Cell> cells_;    ///< by stage and first layer
};

}  // namespace

std::vector<JointPlan> plan_joint(const JointProblem& problem, double beyond) {
  if (problem.stages > problem.least.size()) return {};
  return JointSearch(problem).plans(beyond);
}

}  // namespace plimsoll
