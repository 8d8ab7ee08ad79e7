// The strategy `offload_dp`: which stages' values leave, by dynamic programming over the stages of a chain, if copies
// that end inside a stage were free to be counted at its end. Source: the second relaxation of Beaumont, Eyraud-Dubois,
// Shilova, "Optimal GPU-CPU offloading strategies for deep neural network training", Euro-Par 2020. Its text was not at
// hand; states as in the offloading half of POFO (Beaumont, Eyraud-Dubois, Shilova, NeurIPS 2021).

#include <algorithm>

#include "strategies/api/strategy.h"
#include "strategies/offloading/activations/offload_levels.h"
#include "strategies/offloading/activations/offload_options.h"
#include "strategies/offloading/activations/offload_placement.h"
#include "strategies/offloading/activations/offload_plans.h"
#include "strategies/offloading/activations/offload_selection.h"
#include "strategies/offloading/activations/offload_store.h"
#include "strategies/offloading/activations/offload_table.h"

namespace plimsoll {
namespace {

struct OffloadDpOptions : OffloadOptions {
  std::uint32_t slots = 24;
};

/// A stage's first forward and last backward position on the tape, and what its first forward leaves for the backward.
std::vector<OffloadStage> stages_of(const PartTask& task, const OffloadModel& model) {
  std::vector<OffloadStage> stages(task.problem.chain->stages.size());
  std::vector<bool> ran(stages.size(), false);
  for (std::uint32_t p = 0; p < model.positions(); ++p) {
    const Op& op = task.problem.graph[model.computes[p].op];
    if (op.phase == Phase::forward && !ran[op.stage]) stages[op.stage].forward = p;
    if (op.phase == Phase::forward) ran[op.stage] = true;
    if (op.phase != Phase::forward) stages[op.stage].backward = p;
  }
  for (const std::uint32_t g : saved_gaps(model)) {
    const OffloadGap& gap = model.gaps[g];
    if (!gap.holds_positions()) continue;
    OffloadStage& stage = stages[task.problem.graph[model.computes[gap.made].op].stage];
    stage.gaps.push_back(g);
    stage.bytes += gap.bytes;
  }
  return stages;
}

TapePool offload_dp_plans(const PartTask& task, const OffloadDpOptions& options, const OffloadModel& model) {
  TapePool pool;
  pool.add(planned_moves(task, model, {}));
  if (!model.has_host) return pool;
  const std::uint32_t chunks = options.chunks;
  const auto slots = options.slots;
  const Selection all = select_items(model, offload_items(model, 1), SelectionRule::first_made);
  const std::vector<OffloadStage> stages = stages_of(task, model);
  for (const Bytes budget : memory_levels(all.peaks.back(), all.peaks.front(), options.levels, model.positions())) {
    const std::optional<std::vector<bool>> leaves = choose_stages(model, stages, budget, slots);
    std::vector<bool> chosen(model.gaps.size(), false);
    for (std::size_t i = 0; leaves && i < stages.size(); ++i) {
      for (const std::uint32_t g : stages[i].gaps) chosen[g] = (*leaves)[i];
    }
    if (const std::optional<PlacedCopies> made = place_chosen(model, chosen, chunks, budget)) {
      pool.add(planned_moves(task, model, made->moves));
    }
  }
  return pool;
}

constexpr auto offload_dp_options = options_of<OffloadDpOptions>(
    option_of<&OffloadDpOptions::slots>({
        .name = "slots",
        .least = 2,
        .most = 100,
        .help = "resolution of the choice: sizes are rounded to 1/slots of the bytes that can be offloaded; the plan "
                "itself is exact",
    }),
    copy_chunks_option, levels_option, store_option);

std::vector<TapeOutcome> offload_dp_tapes(const PartTask& task, const OffloadDpOptions& options,
                                          std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  return best_plans(task, options, budgets, before,
                    [&](const OffloadModel& model) { return offload_dp_plans(task, options, model); });
}

std::vector<Bytes> offload_dp_candidates(const PartTask& task, const OffloadDpOptions& options) {
  return peaks_of_plans(task, options,
                        [&](const OffloadModel& model) { return offload_dp_plans(task, options, model); });
}

}  // namespace

extern constinit const StrategyInfo offload_dp_strategy{
    .name = "offload_dp",
    .family = Family::offloading,
    .summary = "chooses the stages to offload by dynamic programming over the bytes that wait to leave and to return",
    .source = "Beaumont, Eyraud-Dubois, Shilova, \"Optimal GPU-CPU offloading strategies\", Euro-Par 2020",
    .chains_only = true,
    .options = offload_dp_options,
    .tapes = by_options<offload_dp_tapes>,
    .candidates = by_options<offload_dp_candidates>,
    .effort = {.stages = 300},
};

}  // namespace plimsoll
