// Baechi, from a graph to a placement within memory: `baechi_etf` and `baechi_sct`.

#include "strategies/placement/baechi/baechi.h"

#include "strategies/placement/baechi/baechi_fusion.h"
#include "strategies/placement/baechi/baechi_schedule.h"

namespace plimsoll {
namespace {

constexpr auto baechi_options =
    options_of<OwnOrderOptions>(place_on_option, homes_option, own_queue_option, usable_option);

template <BaechiMethod method>
ListOutcome baechi_by(const OpDag& dag, const Machine& machine) {
  return baechi_placement(dag, machine, method);
}

}  // namespace

ListOutcome baechi_placement(const OpDag& dag, const Machine& machine, BaechiMethod method) {
  const FusedDag small = fused(dag, co_placed(dag, machine));
  std::vector<std::uint32_t> favourite;
  if (method == BaechiMethod::sct) favourite = favourite_children(small.dag, machine).child;
  const std::optional<BaechiSchedule> schedule = baechi_schedule(small.dag, machine, favourite);
  if (!schedule) return Infeasible{.reason = "no device has room for the next group of ops", .smallest = {}};
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

// The strategy `baechi_etf`: groups and fused ops, then of all that are ready and all devices with room the pair that
// starts first.
// Source: Jeon, Cai, Srivastava, Jiang, Ke, Meng, Xie, Gupta, "Baechi: fast device placement of machine learning
// graphs", SoCC 2020 (m-ETF).
extern constinit const StrategyInfo baechi_etf_strategy{
    .name = "baechi_etf",
    .family = Family::placement,
    .summary =
        "groups and fuses ops, then places the op that starts first, within memory, with one transfer channel per "
        "device",
    .source = "Jeon et al., SoCC 2020",
    .options = baechi_options,
    .kind = placed_within<baechi_etf_strategy, placed_from<baechi_by<BaechiMethod::etf>>, OwnOrderOptions>,
};

// The strategy `baechi_sct`: as `baechi_etf`, but a device waits for the favourite child of what it ran last, where
// that can start there first. Source: Jeon, Cai, Srivastava, Jiang, Ke, Meng, Xie, Gupta, "Baechi: fast device
// placement of machine learning graphs", SoCC 2020 (m-SCT).
extern constinit const StrategyInfo baechi_sct_strategy{
    .name = "baechi_sct",
    .family = Family::placement,
    .summary =
        "as baechi_etf, but a device waits for the favourite child of the op that ran last, found by a linear program",
    .source = "Jeon et al., SoCC 2020; Hanen and Munier 1995",
    .options = baechi_options,
    .kind = placed_within<baechi_sct_strategy, placed_from<baechi_by<BaechiMethod::sct>>, OwnOrderOptions>,
};

}  // namespace plimsoll
