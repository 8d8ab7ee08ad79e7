#include "strategies/hybrid/elimination.h"
#include "strategies/hybrid/split_improvement.h"
#include "strategies/hybrid/split_search.h"

namespace plimsoll {
namespace {

constexpr auto tofu_options = options_of<SplitOptions>(split_devices_option, work_model_option, split_memory_option,
                                                       split_replicas_option, collectives_option);

DecisionsOutcome tofu_splits(const Problem& problem, const SplitOptions& options, const Deadline& deadline) {
  const auto search = [](const BspModel&, const SplitTable& table, double) -> std::optional<SplitChoices> {
    std::optional<EliminatedSplit> made = eliminated(table);
    if (!made) return std::nullopt;
    return made->fits ? std::move(made->choices) : least_kept(table, made->choices);
  };
  const SplitOnDevices splits = [&](const Problem& own, std::uint32_t devices) {
    return split_in_halves(own, devices, options, search);
  };
  return in_replicas(problem, options, std::span(&splits, 1), deadline);
}

}  // namespace

extern constinit const StrategyInfo tofu_strategy{
    .name = "tofu",
    .family = Family::hybrid,
    .summary =
        "The machine is halved level by level; in each, dynamic programming cuts all operators at the least cost.",
    .source =
        "Wang, Huang and Li, Supporting Very Large Models using Automatic Dataflow Graph Partitioning, EuroSys 2019",
    .options = tofu_options,
    .kind = SplitStrategy{.decide = by_options<tofu_splits>, .ranks = by_options<split_ranks>},
};

}  // namespace plimsoll
