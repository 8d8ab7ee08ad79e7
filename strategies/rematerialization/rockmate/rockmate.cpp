// The strategy `rockmate`: blocks solved into options (rockmate_blocks.h, for graphs rockmate_graph.h), and a recursion
// over blocks (block_table.h).

#include <algorithm>
#include <cmath>
#include <memory>

#include "strategies/api/strategy.h"
#include "strategies/models/best_of_sequences.h"
#include "strategies/models/chain_pass.h"
#include "strategies/models/op_sequence.h"
#include "strategies/rematerialization/policies/greedy_recompute.h"
#include "strategies/rematerialization/rockmate/rockmate_blocks.h"
#include "strategies/rematerialization/rockmate/rockmate_graph.h"
#include "strategies/rematerialization/rotor/rotor_exact.h"

namespace plimsoll {
namespace {

struct RockmateOptions {
  std::optional<std::size_t> block;
  std::size_t options = 10;
  std::int64_t slots = 500;
};

struct TwoLevels {
  std::vector<SolvedBlock> blocks;
  BlockTable table;
};

std::vector<Block> outer(const std::vector<SolvedBlock>& solved) {
  std::vector<Block> blocks;
  blocks.reserve(solved.size());
  for (const SolvedBlock& each : solved) blocks.push_back(each.block);
  return blocks;
}

/// store_all's, and where blocks may have any size and stages are few all of rotor's, whose blocks are single stages.
std::vector<ChainSequence> plans_of_single_stages(const ChainModel& model, const RockmateOptions& options) {
  constexpr std::size_t few = 64;
  std::vector<ChainSequence> plans{store_all_sequence(model.stages())};
  if (options.block || model.stages() > few) return plans;
  const RotorExact rotor(model);
  for (const Bytes budget : rotor.steps()) plans.push_back(rotor.solve(budget).value().sequence);
  return plans;
}

SequenceFamily rockmate_family(const PartTask& task, const RockmateOptions& options) {
  const ChainPart part = chain_part(task.problem, task.part());
  const ChainModel model = chain_model(task.problem, part);
  const std::size_t stages = model.stages();
  const auto root = static_cast<std::size_t>(std::lround(std::sqrt(static_cast<double>(stages))));
  const std::size_t size = !options.block ? std::clamp<std::size_t>(root, 1, 100) : *options.block;
  const Bytes most = evaluate(model, store_all_sequence(stages)).peak - model.resident - model.x[0];
  const std::vector<SolvedBlock> solved = solved_blocks(model, size, options.options);
  const auto levels = std::make_shared<const TwoLevels>(
      TwoLevels{solved, BlockTable(outer(solved), OptionUse::anywhere, most, options.slots)});
  const auto single = std::make_shared<const std::vector<ChainSequence>>(plans_of_single_stages(model, options));
  return {.name = "rockmate", .count = single->size() + levels->table.plans(), .sequence = [=](std::size_t k) {
            return k < single->size() ? (*single)[k]
                                      : sequence_of(levels->blocks, levels->table.plan(k - single->size()));
          }};
}

PlanPool graph_plans(const PartTask& task, const RockmateOptions& options) {
  std::vector<std::size_t> sizes{6, 12, 24};
  if (options.block) sizes = {*options.block};
  const OpModel model = op_model(task);
  PlanPool pool(task);
  pool.add(store_all_ops(task));
  add_greedy_recompute(pool, model);
  for (const std::size_t size : sizes) {
    const BlockEffort effort{.block = size, .options = options.options, .slots = options.slots};
    block_sequences(model, effort, [&](const OpSequence& sequence) { pool.add(sequence); });
  }
  return pool;
}

constexpr auto rockmate_options = options_of<RockmateOptions>(
    option_of<&RockmateOptions::block>({
        .name = "block",
        .least = 1,
        .most = 100,
        .help = "size of a block: stages of a chain (auto: the square root of their number), or forward ops of a graph "
                "(auto: 6, 12 or 24, whichever is the fastest within the budget)",
    }),
    option_of<&RockmateOptions::options>({
        .name = "options",
        .least = 1,
        .most = 100,
        .help = "number of budgets at which each block is solved, once for all the memory that it needs and once for "
                "what it keeps between its forward and backward",
    }),
    option_of<&RockmateOptions::slots>({
        .name = "slots",
        .least = 1,
        .most = 100'000,
        .help = "resolution of memory between blocks: sizes are rounded up to 1/slots of the peak of store_all (unless "
                "their common divisor is that large)",
    }));

std::vector<TapeOutcome> rockmate_tapes(const PartTask& task, const RockmateOptions& options,
                                        std::span<const std::optional<Bytes>> budgets, const Tape*) {
  if (task.problem.chain) {
    return or_plain_training(task, budgets, best_of_sequences(task, rockmate_family(task, options), budgets));
  }
  if (const std::optional<std::string> why = not_one_part(task)) return refused(*why, budgets);
  return graph_plans(task, options).outcomes(budgets, "no combination of the blocks' options fits");
}

std::vector<Bytes> rockmate_candidates(const PartTask& task, const RockmateOptions& options) {
  if (!task.problem.chain) return graph_plans(task, options).peaks();
  std::vector<Bytes> budgets = budgets_of_sequences(task, rockmate_family(task, options));
  budgets.push_back(plain_training_peak(task));
  return budgets;
}

}  // namespace

extern constinit const StrategyInfo rockmate_strategy{
    .name = "rockmate",
    .family = Family::rematerialization,
    .summary = "solves each block of a chain or graph for several ways to keep or recompute, and combines the blocks",
    .source =
        "Zhao, Le Hellard, Eyraud-Dubois, Gusak, Beaumont, 'Rockmate: an efficient, fast, automatic and generic "
        "tool for re-materialization in PyTorch', ICML 2023; graphs: Gusak et al., 'HiRemate', ICML 2025",
    .options = rockmate_options,
    .kind =
        TapeStrategy{
            .tapes = by_options<rockmate_tapes>,
            .candidates = by_options<rockmate_candidates>,
            .plans_parts = true,
        },
    .effort = {.stages = 250, .ops = 5000},
};

}  // namespace plimsoll
