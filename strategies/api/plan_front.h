#pragma once
// The fastest of several plans within each budget, so that less memory is never faster.

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/expects.h"
#include "strategies/api/strategy.h"

namespace plimsoll {

template <class Plan>
class PlanFront {
 public:
  /// Kept unless another is as fast within as little.
  void add(Bytes needs, Seconds makespan, Plan plan) {
    const auto above = std::ranges::upper_bound(kept_, needs, {}, &Kept::needs);
    if (above != kept_.begin() && std::prev(above)->makespan <= makespan) return;
    const auto from = std::ranges::lower_bound(kept_, needs, {}, &Kept::needs);
    auto end = from;
    while (end != kept_.end() && end->makespan >= makespan) ++end;
    kept_.insert(kept_.erase(from, end), {needs, makespan, std::move(plan)});
  }

  bool empty() const { return kept_.empty(); }

  /// The least budget that one of them fits.
  Bytes least() const {
    EXPECTS(!kept_.empty());
    return kept_.front().needs;
  }

  const Plan* fastest_within(std::optional<Bytes> budget) const {
    const auto above = budget ? std::ranges::upper_bound(kept_, *budget, {}, &Kept::needs) : kept_.end();
    return above == kept_.begin() ? nullptr : &std::prev(above)->plan;
  }

  /// For each budget what `planned` makes of the fastest; `reason` where none fits.
  template <class Planned>
  std::vector<TapeOutcome> outcomes(std::span<const std::optional<Bytes>> budgets, std::string_view reason,
                                    const Planned& planned) const {
    std::vector<TapeOutcome> outcomes;
    for (const std::optional<Bytes>& budget : budgets) {
      if (const Plan* plan = fastest_within(budget)) {
        outcomes.emplace_back(planned(*plan));
      } else {
        outcomes.emplace_back(Infeasible{std::string(reason), least()});
      }
    }
    return outcomes;
  }

  /// At which the fastest changes, ascending.
  std::vector<Bytes> budgets() const {
    std::vector<Bytes> budgets;
    for (const Kept& kept : kept_) budgets.push_back(kept.needs);
    return budgets;
  }

 private:
  struct Kept {
    Bytes needs;
    Seconds makespan;
    Plan plan;
  };
  std::vector<Kept> kept_;  // needs rise, makespans fall
};

}  // namespace plimsoll
