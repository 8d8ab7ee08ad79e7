// The strategy `heft`: ops by the longest path from them to the end, each where it ends first, into idle times too.
//   rank(v) = mean time(v) + max over readers w of (mean transfer(v, w) + rank(w))
// Source: Topcuoglu, Hariri, Wu, "Performance-effective and low-complexity task scheduling for heterogeneous
// computing", IEEE TPDS 13(3), 2002, section 4.1.

#include <algorithm>
#include <numeric>

#include "strategies/placement/lists/insertion_schedule.h"
#include "strategies/placement/lists/levels.h"
#include "strategies/placement/lists/list_schedulers.h"

namespace plimsoll {

ListOutcome heft_schedule(const OpDag& dag, const Machine& machine) {
  const std::vector<Nanoseconds> rank = mean_levels(dag, machine).bottom;
  std::vector<std::uint32_t> nodes(dag.size);
  std::iota(nodes.begin(), nodes.end(), 0u);
  // Numbers are in a valid order, so that of equal ranks what is waited for comes first.
  std::ranges::stable_sort(nodes, std::ranges::greater{}, [&](std::uint32_t v) { return rank[v]; });
  InsertionSchedule schedule(dag, machine);
  for (const std::uint32_t v : nodes) {
    const std::optional<std::uint32_t> processor = schedule.earliest_finish(v);
    if (!processor) return nowhere_to_run();
    schedule.place(v, *processor);
  }
  const Nanoseconds makespan = schedule.makespan();
  return ListSchedule{std::move(schedule).placement(), makespan};
}

namespace {

constexpr auto heft_options = options_of<OwnOrderOptions>(place_on_option, homes_option, own_queue_option);

std::vector<PartitionOutcome> heft_partition(const Problem& problem, const OwnOrderOptions& options,
                                             std::span<const std::optional<Bytes>> budgets) {
  return placed(problem, options, "heft", budgets, false,
                [](const OpDag& dag, const Machine& machine) { return without_makespan(heft_schedule(dag, machine)); });
}

}  // namespace

extern constinit const StrategyInfo heft_strategy{
    .name = "heft",
    .family = Family::placement,
    .summary = "puts ops, longest path to the end first, where each ends first, idle times between others included",
    .source = "Topcuoglu et al., IEEE TPDS 2002",
    .options = heft_options,
    .kind = PartitionStrategy{.partition = by_options<heft_partition>},
};

}  // namespace plimsoll
