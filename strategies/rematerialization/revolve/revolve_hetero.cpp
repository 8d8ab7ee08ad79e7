#include "strategies/rematerialization/revolve/revolve_hetero.h"

#include <memory>

#include "strategies/api/strategy.h"
#include "strategies/models/best_of_sequences.h"
#include "strategies/models/checkpoint_segments.h"

namespace plimsoll {
namespace {

struct RevolveHeteroOptions {
  std::int64_t slots = 500;
};

/// Every stage is recomputed from its kept input: no sequence of Revolve's class is faster.
ChainSequence fastest(std::size_t stages) {
  std::vector<bool> recomputed(stages, true);
  recomputed.back() = false;
  return segments_sequence(segment_each(recomputed));
}

ChainSequence sequence_of(const std::vector<BlockStep>& steps) {
  ChainSequence sequence;
  for (const auto& [kind, stage, option] : steps) {
    sequence.push_back({kind == BlockStep::Kind::forward_nothing  ? ChainStep::Kind::forward
                        : kind == BlockStep::Kind::forward_option ? ChainStep::Kind::forward_saving
                                                                  : ChainStep::Kind::backward,
                        stage});
  }
  return sequence;
}

SequenceFamily revolve_hetero_family(const PartTask& task, const RevolveHeteroOptions& options) {
  const ChainPart part = chain_part(task.problem, task.part());
  ChainModel model = chain_model(task.problem, part);
  model.recomputable.assign(model.stages(), true);  // stages that may run once are seen to afterwards
  const std::size_t stages = model.stages();
  const Bytes most = evaluate(model, fastest(stages)).peak - model.resident - model.x[0];
  const auto table =
      std::make_shared<const BlockTable>(revolve_blocks(model), OptionUse::last_block, most, options.slots);
  return {.name = "revolve_hetero", .count = table->plans() + 1, .sequence = [=](std::size_t k) {
            return k == 0 ? fastest(stages) : sequence_of(table->plan(k - 1));
          }};
}

}  // namespace

std::vector<Block> revolve_blocks(const ChainModel& model) {
  const std::vector<Bytes> gradients = gradients_made_after(model);
  std::vector<Block> blocks;
  for (std::size_t i = 0; i < model.stages(); ++i) {
    const Bytes held = model.output_gradient(i) + gradients[i];
    const BlockOption save{
        .kept = model.saved[i],
        .forward = model.saved[i] + model.forward_workspace[i],
        .backward =
            held + model.saved[i] + model.input_gradient[i] + model.new_gradients[i] + model.backward_workspace[i],
        .extra = {},
    };
    blocks.push_back({.x = model.x[i],
                      .held = held,
                      .first_forward = model.x[i + 1] + model.nograd_workspace[i],
                      .later_forwards = {},
                      .nograd = model.nograd[i],
                      .recomputable = model.recomputable[i],
                      .options = {save}});
  }
  return blocks;
}

namespace {

constexpr auto revolve_hetero_options = options_of<RevolveHeteroOptions>(option_of<&RevolveHeteroOptions::slots>({
    .name = "slots",
    .least = 1,
    .most = 100'000,
    .help = "resolution of memory: sizes are rounded up to 1/slots of the peak of the fastest schedule (unless their "
            "common divisor is that large); chains of more than 365 stages get fewer slots",
}));

std::vector<TapeOutcome> revolve_hetero_tapes(const PartTask& task, const RevolveHeteroOptions& options,
                                              std::span<const std::optional<Bytes>> budgets, const Tape*) {
  return best_of_sequences(task, revolve_hetero_family(task, options), budgets);
}

std::vector<Bytes> revolve_hetero_candidates(const PartTask& task, const RevolveHeteroOptions& options) {
  return budgets_of_sequences(task, revolve_hetero_family(task, options));
}

}  // namespace

extern constinit const StrategyInfo revolve_hetero_strategy{
    .name = "revolve_hetero",
    .family = Family::rematerialization,
    .summary = "Revolve for unequal stages: checkpoints only stage inputs; each stage saves right before its backward",
    .source =
        "Griewank, Walther, 'Algorithm 799: revolve', 2000; the heterogeneous variant that Beaumont et al., "
        "'Optimal checkpointing for heterogeneous chains', 2019, compare with",
    .chains_only = true,
    .options = revolve_hetero_options,
    .kind =
        TapeStrategy{
            .tapes = by_options<revolve_hetero_tapes>,
            .candidates = by_options<revolve_hetero_candidates>,
            .plans_parts = true,
        },
    .effort = {.stages = 250},
};

}  // namespace plimsoll
