// The strategy `baechi_sct`: as `baechi_etf`, but a device waits for the favourite child of what it ran last, where
// that can start there first. Source: Jeon, Cai, Srivastava, Jiang, Ke, Meng, Xie, Gupta, "Baechi: fast device
// placement of machine learning graphs", SoCC 2020 (m-SCT).

#include "strategies/placement/baechi/baechi.h"

namespace plimsoll {
namespace {

constexpr auto baechi_sct_options =
    options_of<OwnOrderOptions>(place_on_option, homes_option, own_queue_option, usable_option);

std::vector<PartitionOutcome> baechi_sct_partition(const Problem& problem, const OwnOrderOptions& options,
                                                   std::span<const std::optional<Bytes>> budgets) {
  return placed(problem, options, "baechi_sct", budgets, true, [](const OpDag& dag, const Machine& machine) {
    return without_makespan(baechi_placement(dag, machine, BaechiMethod::sct));
  });
}

}  // namespace

extern constinit const StrategyInfo baechi_sct_strategy{
    .name = "baechi_sct",
    .family = Family::placement,
    .summary = "as baechi_etf, but devices wait for the favourite child of what ran last, by a linear program",
    .source = "Jeon et al., SoCC 2020; Hanen and Munier 1995",
    .options = baechi_sct_options,
    .kind = PartitionStrategy{.partition = by_options<baechi_sct_partition>},
};

}  // namespace plimsoll
