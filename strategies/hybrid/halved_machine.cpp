// The machine is halved again and again, and operators are cut in each half: `hsm2dl` and `tofu`.

#include "strategies/hybrid/elimination.h"
#include "strategies/hybrid/split_improvement.h"
#include "strategies/hybrid/split_search.h"
#include "strategies/list.h"

namespace plimsoll {
namespace {

struct Hsm2dlOptions : SplitOptions {
  Hsm2dlOptions() { replicas.reset(); }

  std::uint32_t sweeps = 2;
};

constexpr auto hsm2dl_options =
    options_of<Hsm2dlOptions>(split_devices_option, work_model_option, split_memory_option, split_replicas_option,
                              option_of<&Hsm2dlOptions::sweeps>({
                                  .name = "sweeps",
                                  .least = 1,
                                  .most = 100,
                                  .help = "how many times each operator is cut again, given the cuts of all others",
                              }),
                              collectives_option);

DecisionsOutcome hsm2dl_splits(const Problem& problem, const Hsm2dlOptions& options, const Deadline& deadline) {
  const std::uint32_t sweeps = options.sweeps;
  const auto search = [sweeps](const BspModel& model, const SplitTable& table, double weight) {
    return std::optional(swept(table, model.uniform_starts(table, 0, weight), sweeps, weight));
  };
  const auto swept_where = [&](bool sums_hide) -> SplitOnDevices {
    return [&, sums_hide](const Problem& own, std::uint32_t devices) {
      return split_in_halves_and_swept(own, devices, options, search, sweeps, sums_hide);
    };
  };
  const SplitOnDevices as_megatron = [&](const Problem& own, std::uint32_t devices) {
    Options blocks(megatron_strategy.options, {{"tensor", std::to_string(devices)}});
    blocks.change<MeshOptions>().collectives = options.collectives;
    return megatron_strategy.decide(own, blocks, deadline);
  };
  const SplitOnDevices searches[] = {swept_where(true), swept_where(false), as_megatron};
  return in_replicas(problem, options, searches, deadline);
}

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

extern constinit const StrategyInfo hsm2dl_strategy{
    .name = "hsm2dl",
    .family = Family::hybrid,
    .summary =
        "The machine is halved level by level; on each level a symbolic BSP model chooses the cut of every operator.",
    .source = "Wang, HSM2DL (thesis, tel-04088683); Wang, Li et al., SMSG, IJPP 2023",
    .options = hsm2dl_options,
    .kind = SplitStrategy{.decide = by_options<hsm2dl_splits>, .ranks = by_options<split_ranks>},
};

extern constinit const StrategyInfo tofu_strategy{
    .name = "tofu",
    .family = Family::hybrid,
    .summary =
        "The machine is halved level by level; on each level dynamic programming cuts all operators at the least cost.",
    .source =
        "Wang, Huang and Li, Supporting Very Large Models using Automatic Dataflow Graph Partitioning, EuroSys 2019",
    .options = tofu_options,
    .kind = SplitStrategy{.decide = by_options<tofu_splits>, .ranks = by_options<split_ranks>},
};

}  // namespace plimsoll
