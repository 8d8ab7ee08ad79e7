#pragma once
// Where a legal plan stands in the library of memory planning: its class, its instance and budget, how far it is from
// the bound and from the best plan that is known.

#include <optional>
#include <span>
#include <string>

#include "experiments/library/plan_library.h"
#include "experiments/library/verdict.h"
#include "experiments/study/run.h"

namespace plimsoll {

struct PlacedPlan {
  std::string outside;                     ///< why no instance can have it; empty: one may
  PlanClass plans = PlanClass::recompute;  ///< what it does
  std::optional<Bytes> budget;             ///< within which the bound holds: the row's, else the stated one
  std::optional<Seconds> cuts;             ///< the bound by cuts (sim/bound); unset: none holds
  std::optional<Seconds> bound;            ///< the better of that and the library's
  const LibraryInstance* instance = nullptr;
  const LibraryBudget* row = nullptr;  ///< the stated budget, else the least of the instance that it fits

  /// Over the best that is known, relative; negative: faster.
  std::optional<double> over_best(Seconds time) const;
  std::optional<double> over_bound(Seconds time) const;
};

/// Of a schedule that answers the question.
PlacedPlan placed(const Question&, const Problem&, const Schedule&, const Verdict&, std::span<const LibraryInstance>);

}  // namespace plimsoll
