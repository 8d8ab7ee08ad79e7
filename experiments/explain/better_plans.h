#pragma once
// What more memory would buy: plans of the same strategy that are faster, and what no plan can be below.

#include <optional>
#include <string>
#include <vector>

#include "experiments/study/choice/several_devices.h"

namespace plimsoll {

struct FasterPlan {
  Bytes needs;
  Seconds makespan;
};

/// What it costs to be faster by a share.
struct Shave {
  double share = 0;
  std::optional<FasterPlan> plan = {};  ///< of the strategy, the one that needs the least
  std::optional<Bytes> at_least = {};   ///< within less no schedule that packs nothing is so fast
  bool is_impossible = false;           ///< whatever the memory, by the same bound
};

struct BetterPlans {
  std::optional<FasterPlan> next;  ///< the faster plan that needs the least
  std::vector<Shave> shaves;       ///< of 1, 2, 5, 10 and 20 %
  std::string no_plans,
      no_bounds;  ///< why the strategy was not asked, and why there is no bound; empty: they are there
};

/// Bounds are those of one device (sim/bound): of schedules that run ops again and copy. Plans are those of the
/// strategy's front; a schedule from a file has none.
BetterPlans better_plans(const AnsweredQuestion&);

}  // namespace plimsoll
