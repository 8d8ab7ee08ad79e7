#include "strategies/rematerialization/revolve/revolve.h"

#include <algorithm>
#include <memory>

#include "sim/core/expects.h"
#include "strategies/api/strategy.h"
#include "strategies/models/best_of_sequences.h"
#include "strategies/models/checkpoint_segments.h"

namespace plimsoll {
namespace {

struct RevolveOptions {
  std::optional<std::size_t> slots;
};

constexpr std::size_t most_slots = 1000;

SequenceFamily revolve_family(const PartTask& task, const RevolveOptions& options) {
  const std::size_t stages = chain_part(task.problem, task.part()).chain.stages.size();
  const std::size_t useful = std::min(stages, most_slots);
  const bool any = !options.slots;
  const std::size_t slots = any ? useful : std::min(useful, *options.slots);
  const auto schedule = std::make_shared<const RevolveSchedule>(stages, slots);
  return {.name = "revolve", .count = any ? slots : 1, .sequence = [schedule, any, slots](std::size_t k) {
            return schedule->sequence(any ? k + 1 : slots);
          }};
}

constexpr auto revolve_options = options_of<RevolveOptions>(option_of<&RevolveOptions::slots>({
    .name = "slots",
    .least = 1,
    .most = 1'000,
    .help = "number of checkpoints: stage inputs kept at one time, the network's input included; auto: the number "
            "whose schedule is the fastest within the budget",
}));

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

constexpr auto revolve_hetero_options = options_of<RevolveHeteroOptions>(option_of<&RevolveHeteroOptions::slots>({
    .name = "slots",
    .least = 1,
    .most = 100'000,
    .help = "resolution of memory: sizes are rounded up to 1/slots of the peak of the fastest schedule (unless their "
            "common divisor is that large); chains of more than 365 stages get fewer slots",
}));

}  // namespace

RevolveSchedule::RevolveSchedule(std::size_t stages, std::size_t most_slots) : stages_{stages} {
  EXPECTS(stages > 0 && most_slots > 0);
  table_.resize(most_slots * (stages + 1));
  for (std::size_t s = 1; s <= most_slots; ++s) {
    for (std::size_t n = 2; n <= stages; ++n) {
      const auto all = static_cast<std::int64_t>(n);
      Entry best{all * (all - 1) / 2, static_cast<std::uint32_t>(n - 1)};
      // The cost is convex in j, and the best j does not fall from n - 1 to n and moves by one at most.
      const std::size_t from = s > 1 && n > 2 ? entry(n - 1, s).split : 1;
      for (std::size_t j = from; s > 1 && j <= from + 1 && j < n; ++j) {
        const std::int64_t forwards =
            static_cast<std::int64_t>(j) + entry(n - j, s - 1).forwards + entry(j, s).forwards;
        if (forwards < best.forwards || (forwards == best.forwards && j < best.split)) {
          best = {forwards, static_cast<std::uint32_t>(j)};
        }
      }
      table_[(s - 1) * (stages + 1) + n] = best;
    }
  }
}

ChainSequence RevolveSchedule::sequence(std::size_t slots) const {
  ChainSequence sequence;
  append(sequence, 0, stages_, slots);
  return sequence;
}

void RevolveSchedule::append(ChainSequence& sequence, std::size_t first, std::size_t stages, std::size_t slots) const {
  using Kind = ChainStep::Kind;
  // The first checkpoint stays while what is behind the next one is reversed, then the stages before that one follow.
  while (stages > 1) {
    const std::size_t j = entry(stages, slots).split;
    for (std::size_t i = first; i < first + j; ++i) sequence.push_back({Kind::forward, i});
    append(sequence, first + j, stages - j, slots > 1 ? slots - 1 : 1);
    stages = j;
  }
  sequence.push_back({Kind::forward_saving, first});
  sequence.push_back({Kind::backward, first});
}

// The strategy `revolve`: binomial checkpointing as a tape.
extern constinit const StrategyInfo revolve_strategy{
    .name = "revolve",
    .family = Family::rematerialization,
    .summary = "binomial checkpointing: the fewest forwards for a number of checkpoints, as if all stages were equal",
    .source = "Griewank, Walther, 'Algorithm 799: revolve', ACM Transactions on Mathematical Software 26(1), 2000",
    .chains_only = true,
    .options = revolve_options,
    .kind = best_of_family<RevolveOptions, revolve_family>(),
    .effort = {.stages = 1000},
};

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

extern constinit const StrategyInfo revolve_hetero_strategy{
    .name = "revolve_hetero",
    .family = Family::rematerialization,
    .summary = "Revolve for unequal stages: checkpoints only stage inputs; each stage saves right before its backward",
    .source =
        "Griewank, Walther, 'Algorithm 799: revolve', 2000; the heterogeneous variant that Beaumont et al., "
        "'Optimal checkpointing for heterogeneous chains', 2019, compare with",
    .chains_only = true,
    .options = revolve_hetero_options,
    .kind = best_of_family<RevolveHeteroOptions, revolve_hetero_family>(),
    .effort = {.stages = 250},
};

}  // namespace plimsoll
