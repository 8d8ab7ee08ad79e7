#include "strategies/placement/baechi/baechi.h"

#include "strategies/placement/baechi/baechi_fusion.h"
#include "strategies/placement/baechi/baechi_groups.h"
#include "strategies/placement/baechi/baechi_schedule.h"
#include "strategies/placement/baechi/favourites.h"

namespace plimsoll {
ListOutcome baechi_placement(const OpDag& dag, const Machine& machine, BaechiMethod method) {
  const FusedDag small = fused(dag, co_placed(dag, machine));
  std::vector<std::uint32_t> favourite;
  if (method == BaechiMethod::sct) favourite = favourite_children(small.dag, machine).child;
  const std::optional<BaechiSchedule> schedule = baechi_schedule(small.dag, machine, favourite);
  if (!schedule) return Infeasible{.reason = "no device has room for what is to be placed next", .smallest = {}};
  ListSchedule made;
  made.makespan = schedule->made.makespan;
  made.placement.on.resize(dag.size);
  for (std::uint32_t p = 0; p < machine.size(); ++p) {
    std::vector<std::uint32_t>& order = made.placement.order.emplace_back();
    for (const std::uint32_t f : schedule->made.placement.order[p]) {
      for (const std::uint32_t v : small.members[f]) {
        made.placement.on[v] = p;
        order.push_back(v);
      }
    }
  }
  return made;
}

}  // namespace plimsoll
