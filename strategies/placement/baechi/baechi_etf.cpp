// The strategy `baechi_etf`: groups and fused ops, then of all that are ready and all devices with room the pair that
// starts first.
// Source: Jeon, Cai, Srivastava, Jiang, Ke, Meng, Xie, Gupta, "Baechi: fast device placement of machine learning
// graphs", SoCC 2020 (m-ETF).

#include "strategies/placement/baechi/baechi.h"

namespace plimsoll {
namespace {

constexpr auto baechi_etf_options =
    options_of<OwnOrderOptions>(place_on_option, homes_option, own_queue_option, usable_option);

std::vector<PartitionOutcome> baechi_etf_partition(const Problem& problem, const OwnOrderOptions& options,
                                                   std::span<const std::optional<Bytes>> budgets) {
  return placed(problem, options, "baechi_etf", budgets, true, [](const OpDag& dag, const Machine& machine) {
    return without_makespan(baechi_placement(dag, machine, BaechiMethod::etf));
  });
}

}  // namespace

extern constinit const StrategyInfo baechi_etf_strategy{
    .name = "baechi_etf",
    .family = Family::placement,
    .summary =
        "groups and fuses ops, then takes within memory what starts first, with one channel for transfers a device",
    .source = "Jeon et al., SoCC 2020",
    .options = baechi_etf_options,
    .kind = PartitionStrategy{.partition = by_options<baechi_etf_partition>},
};

}  // namespace plimsoll
