#include "strategies/rematerialization/rockmate/rockmate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "sim/core/expects.h"
#include "strategies/api/strategy.h"
#include "strategies/models/best_of_sequences.h"
#include "strategies/models/chain_pass.h"
#include "strategies/models/op_sequence.h"
#include "strategies/rematerialization/policies/greedy_recompute.h"
#include "strategies/rematerialization/rockmate/rockmate_graph.h"
#include "strategies/rematerialization/rotor/rotor_exact.h"

namespace plimsoll {
namespace {

using Kind = ChainStep::Kind;

template <class T>
std::vector<T> part_of(const std::vector<T>& all, std::size_t first, std::size_t end) {
  return {all.begin() + static_cast<std::ptrdiff_t>(first), all.begin() + static_cast<std::ptrdiff_t>(end)};
}

/// Stages [first, end) as a chain of its own; unless they end in the loss, with a last stage that stands for all that
/// happens before the gradient of the output is there.
ChainModel part_of(const ChainModel& model, std::size_t first, std::size_t end) {
  ChainModel part;
  part.x = part_of(model.x, first, end + 1);
  for (auto sizes : {&ChainModel::saved, &ChainModel::input_gradient, &ChainModel::forward_workspace,
                     &ChainModel::nograd_workspace, &ChainModel::backward_workspace, &ChainModel::new_gradients}) {
    part.*sizes = part_of(model.*sizes, first, end);
  }
  for (auto times : {&ChainModel::forward, &ChainModel::nograd, &ChainModel::backward}) {
    part.*times = part_of(model.*times, first, end);
  }
  part.keeps_input = part_of(model.keeps_input, first, end);
  part.keeps_output = part_of(model.keeps_output, first, end);
  part.keeps_input.front() = true;
  part.resident = Bytes{0};
  if (end < model.stages()) {
    part.x.push_back(Bytes{0});
    part.saved.push_back(Bytes{0});
    part.input_gradient.push_back(model.input_gradient[end]);
    for (auto sizes : {&ChainModel::forward_workspace, &ChainModel::nograd_workspace, &ChainModel::backward_workspace,
                       &ChainModel::new_gradients}) {
      (part.*sizes).push_back(Bytes{0});
    }
    for (auto times : {&ChainModel::forward, &ChainModel::nograd, &ChainModel::backward}) {
      (part.*times).push_back(Seconds{0});
    }
    part.keeps_input.push_back(true);
    part.keeps_output.push_back(true);
  }
  part.recomputable.assign(part.stages(), true);
  return part;
}

bool equal(const ChainModel& a, const ChainModel& b) {
  return a.x == b.x && a.saved == b.saved && a.input_gradient == b.input_gradient &&
         a.forward_workspace == b.forward_workspace && a.nograd_workspace == b.nograd_workspace &&
         a.backward_workspace == b.backward_workspace && a.new_gradients == b.new_gradients && a.forward == b.forward &&
         a.nograd == b.nograd && a.backward == b.backward && a.keeps_input == b.keeps_input &&
         a.keeps_output == b.keeps_output;
}

/// When the bare x that step t makes dies: after its last reader before it is made anew.
std::size_t last_reader(const ChainSequence& sequence, std::size_t t) {
  const std::size_t x = sequence[t].stage + 1;
  std::size_t last = t;
  for (std::size_t u = t + 1; u < sequence.size(); ++u) {
    if (sequence[u].kind != Kind::backward && sequence[u].stage + 1 == x) break;
    if (sequence[u].stage == x) last = u;
  }
  return last;
}

/// What the phases of a part's sequence need beside x_0. Step `cut` is the first backward.
BlockOption block_option(const ChainModel& part, const ChainSequence& sequence, std::size_t cut) {
  BlockOption option{};
  std::vector<Bytes> freed(sequence.size());
  Bytes live;
  for (std::size_t t = 0; t < sequence.size(); ++t) {
    const auto [kind, i] = sequence[t];
    Bytes made, workspace;
    if (kind == Kind::backward) {
      made = part.input_gradient[i] + part.new_gradients[i];
      workspace = part.backward_workspace[i];
      freed[t] += part.saved[i] + part.output_gradient(i);
    } else if (kind == Kind::forward_saving) {
      made = part.saved[i];
      workspace = part.forward_workspace[i];
    } else {
      made = part.x[i + 1];
      workspace = part.nograd_workspace[i];
      freed[last_reader(sequence, t)] += made;
      option.extra += part.nograd[i];
    }
    if (t == cut) option.kept = live;
    Bytes& most = t < cut ? option.forward : option.backward;
    most = std::max(most, live + made + workspace);
    live += made - freed[t];
  }
  return option;
}

struct Solutions {
  std::vector<BlockOption> costs;  ///< times ascend, kept bytes fall
  std::vector<ChainSequence> sequences;
};

std::size_t first_backward(const ChainSequence& sequence) {
  const auto found = std::ranges::find(sequence, Kind::backward, &ChainStep::kind);
  return static_cast<std::size_t>(found - sequence.begin());
}

bool no_better(const BlockOption& a, const BlockOption& b) {
  return a.kept >= b.kept && a.forward >= b.forward && a.backward >= b.backward && a.extra >= b.extra;
}

void offer(Solutions& options, const BlockOption& cost, ChainSequence sequence) {
  if (std::ranges::any_of(options.costs, [&](const BlockOption& known) { return no_better(cost, known); })) return;
  options.costs.push_back(cost);
  options.sequences.push_back(std::move(sequence));
}

/// rotor's plans at budgets from the least to store_all's. Where memory beside the part is scarce only when the part
/// waits for its output gradient, what it keeps then counts: so once with room for the waiting only, once as it is.
Solutions solve(ChainModel part, bool waits, std::size_t count) {
  Solutions options;
  Bytes all;
  for (std::size_t i = 0; i < part.stages(); ++i) {
    all += part.saved[i] + part.forward_workspace[i] + part.nograd_workspace[i] + part.backward_workspace[i] +
           part.input_gradient[i] + part.new_gradients[i];
  }
  const ChainModel plain = part;
  for (const bool waiting_counts : {false, true}) {
    if (waiting_counts && !waits) break;
    if (waiting_counts) part.backward_workspace.back() += all;
    const RotorExact rotor(part);
    const std::int64_t least = rotor.smallest_feasible().count, most = rotor.store_all_peak().count;
    const auto steps = static_cast<std::int64_t>(std::max<std::size_t>(count, 2) - 1);
    for (std::int64_t k = 0; k <= steps; ++k) {
      const std::int64_t range = most - least;
      const auto plan = rotor.solve(Bytes{most - range / steps * k - range % steps * k / steps});
      EXPECTS(plan);
      const std::size_t cut = waits ? first_backward(plan->sequence) : plan->sequence.size();
      BlockOption cost = block_option(plain, plan->sequence, cut);
      if (!waits) cost.backward = cost.forward;
      offer(options, cost, plan->sequence);
    }
  }
  return options;
}

SolvedBlock block_of(const ChainModel& model, const ChainModel& part, const Solutions& options, std::size_t first,
                     std::size_t end) {
  const bool waits = end < model.stages();
  SolvedBlock solved{first, end, {}, {}, {}};
  Block& block = solved.block;
  const Bytes gradients = gradients_made_after(model)[end - 1];
  block.x = model.x[first];
  block.held = model.output_gradient(end - 1) + gradients;
  block.recomputable = true;
  for (std::size_t i = first; i < end; ++i) {
    const Bytes need = model.x[i + 1] + model.nograd_workspace[i];
    if (i == first) block.first_forward = need;
    if (i > first) block.later_forwards = std::max(block.later_forwards, model.x[i] + need);
    block.nograd += model.nograd[i];
  }
  for (std::size_t k = 0; k < options.costs.size(); ++k) {
    BlockOption cost = options.costs[k];
    cost.backward += gradients;
    block.options.push_back(cost);
    const ChainSequence& sequence = options.sequences[k];
    const std::size_t cut = waits ? first_backward(sequence) : sequence.size();
    solved.before.emplace_back();
    solved.after.emplace_back();
    for (std::size_t t = 0; t < sequence.size(); ++t) {
      if (sequence[t].stage + first == end) continue;  // the stage that waits
      (t < cut ? solved.before : solved.after).back().push_back({sequence[t].kind, sequence[t].stage + first});
    }
  }
  EXPECTS(part.stages() == end - first + (waits ? 1 : 0));
  return solved;
}

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
        .help = "number of budgets at which each block is solved, both for its peak memory and for the bytes that it "
                "keeps between its forward and backward",
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
  if (!task.problem.chain) return graph_plans(task, options).budgets();
  std::vector<Bytes> budgets = budgets_of_sequences(task, rockmate_family(task, options));
  budgets.push_back(plain_training_peak(task));
  return budgets;
}

}  // namespace

std::vector<SolvedBlock> solved_blocks(const ChainModel& model, std::size_t size, std::size_t options) {
  EXPECTS(size > 0 && options > 0);
  struct Known {
    ChainModel part;
    Solutions options;
  };
  std::vector<Known> known;
  std::vector<SolvedBlock> blocks;
  for (std::size_t first = 0; first < model.stages();) {
    const std::size_t loss = model.stages() - 1;
    const std::size_t end = first < loss ? std::min(first + size, loss) : model.stages();
    ChainModel part = part_of(model, first, end);
    auto same = std::ranges::find_if(known, [&](const Known& k) { return equal(k.part, part); });
    if (same == known.end()) {
      Solutions solved = solve(part, end < model.stages(), options);
      known.push_back({std::move(part), std::move(solved)});
      same = known.end() - 1;
    }
    blocks.push_back(block_of(model, same->part, same->options, first, end));
    first = end;
  }
  return blocks;
}

ChainSequence sequence_of(const std::vector<SolvedBlock>& blocks, const std::vector<BlockStep>& steps) {
  ChainSequence sequence;
  for (const auto& [kind, b, option] : steps) {
    const SolvedBlock& block = blocks[b];
    if (kind == BlockStep::Kind::forward_nothing) {
      for (std::size_t i = block.first; i < block.end; ++i) sequence.push_back({Kind::forward, i});
    } else {
      const ChainSequence& phase = kind == BlockStep::Kind::forward_option ? block.before[option] : block.after[option];
      sequence.insert(sequence.end(), phase.begin(), phase.end());
    }
  }
  return sequence;
}

// The strategy `rockmate`: blocks solved into options (for graphs in rockmate_graph.h), and a recursion
// over blocks (block_table.h).
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
