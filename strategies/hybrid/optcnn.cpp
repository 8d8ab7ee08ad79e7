#include "strategies/hybrid/elimination.h"
#include "strategies/hybrid/split_improvement.h"
#include "strategies/hybrid/split_search.h"

namespace plimsoll {
namespace {

constexpr auto optcnn_options = options_of<SplitOptions>(split_devices_option, work_model_option, split_memory_option,
                                                         split_replicas_option, collectives_option);

DecisionsOutcome optcnn_splits(const Problem& problem, const SplitOptions& options, const Deadline& deadline) {
  const auto search = [](const BspModel&, const SplitTable& table) {
    std::optional<EliminatedSplit> made = eliminated(table);
    if (!made) return SplitSearch{};
    if (made->is_proven && made->fits) return SplitSearch{std::move(made->choices), {}};
    if (made->is_proven) return SplitSearch{least_kept(table, made->choices), {}};
    ImprovedSplit other = improved(table, made->choices, {.rounds = 300});
    const bool is_better = other.fits && (!made->fits || table.priced(other.choices) < table.priced(made->choices));
    return SplitSearch{is_better || !made->fits ? std::move(other.choices) : std::move(made->choices),
                       "optcnn: within this memory the splits are not proven to be the cheapest"};
  };
  const SplitOnDevices splits = [&](const Problem& own, std::uint32_t devices) {
    return split_at_once(own, devices, options, search);
  };
  return in_replicas(problem, options, std::span(&splits, 1), deadline);
}

}  // namespace

extern constinit const StrategyInfo optcnn_strategy{
    .name = "optcnn",
    .family = Family::hybrid,
    .summary =
        "Operators are cut over nodes and devices of a node at once, at the least cost by node and edge elimination.",
    .source = "Jia et al., Exploring Hidden Dimensions in Parallelizing Convolutional Neural Networks, ICML 2018",
    .options = optcnn_options,
    .kind = SplitStrategy{.decide = by_options<optcnn_splits>, .ranks = by_options<split_ranks>},
};

}  // namespace plimsoll
