#include "strategies/rematerialization/rockmate/rockmate_graph.h"

#include <algorithm>
#include <map>
#include <utility>

#include "strategies/models/fullest_moment.h"
#include "strategies/models/recompute_order.h"
#include "strategies/rematerialization/policies/greedy_recompute.h"
#include "strategies/rematerialization/programs/checkmate_solver.h"
#include "strategies/rematerialization/rockmate/graph_blocks.h"

namespace plimsoll {
namespace {

Seconds time_of(const OpModel& model, const OpSequence& sequence) {
  Seconds time;
  for (const OpRun& run : sequence) {
    const std::vector<OpWay>& ways = model.ops[run.op.index].ways;
    time += run.saving == Saving::keep ? ways.front().time : ways.back().time;
  }
  return time;
}

BlockOption cost_of(const BlockPart& part, const OpSequence& sequence) {
  const OpModel& model = part.model;
  BlockOption cost{};
  for (const ModelOp& op : model.ops) cost.extra += op.ways.front().time;
  cost.extra = std::max(Seconds{0}, time_of(model, sequence) - cost.extra);
  const std::vector<MemoryOfRun> memory = memory_of_runs(model, sequence);
  bool waited = false;
  for (std::size_t r = 0; r < sequence.size(); ++r) {
    if (part.waiting && sequence[r].op.index == *part.waiting) {
      cost.kept = memory[r].before;
      waited = true;
    }
    Bytes& most = waited ? cost.backward : cost.forward;
    most = std::max(most, memory[r].during);
  }
  if (!waited) cost.backward = cost.forward;
  cost.backward += part.passes;
  return cost;
}

/// Indices of the front of time against the memory that `bytes` says, ascending, `count` of them at most.
std::vector<std::size_t> front(const std::vector<PricedSequence>& all, std::size_t count, auto&& bytes) {
  std::vector<std::size_t> order(all.size()), kept;
  for (std::size_t k = 0; k < all.size(); ++k) order[k] = k;
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    const auto [first_a, second_a] = bytes(all[a].cost);
    const auto [first_b, second_b] = bytes(all[b].cost);
    if (first_a != first_b) return first_a < first_b;
    if (all[a].cost.extra != all[b].cost.extra) return all[a].cost.extra < all[b].cost.extra;
    return second_a < second_b;
  });
  for (const std::size_t k : order) {
    if (kept.empty() || all[k].cost.extra < all[kept.back()].cost.extra) kept.push_back(k);
  }
  if (kept.size() <= count) return kept;
  std::vector<std::size_t> some;
  for (std::size_t k = 0; k < count; ++k) {
    some.push_back(kept[count == 1 ? kept.size() - 1 : k * (kept.size() - 1) / (count - 1)]);
  }
  return some;
}

constexpr std::size_t most_blocks = 200;  // on one level

class Hierarchy {
 public:
  explicit Hierarchy(const BlockEffort& effort) : effort_(effort) {}

  /// Plans of a part for many budgets; `model`'s op i has the id i.
  std::vector<OpSequence> solve(const OpModel& model, std::optional<std::size_t> waiting = {}) {
    const std::size_t forwards = last_forward(model) + 1;
    if (is_small(forwards)) return leaf_sequences(model);
    const std::vector<GraphCut> cuts = cut_graph(model, std::max(effort_.block, forwards / most_blocks + 1), waiting);
    std::size_t largest = 0;
    for (std::size_t b = 0; b + 1 < cuts.size(); ++b) {
      largest = std::max(largest, cuts[b + 1].forward - cuts[b].forward);
    }
    if (largest + 1 >= forwards) return leaf_sequences(model);
    return combine(model, block_parts(model, cuts));
  }

  const BlockCount& count() const { return count_; }

 private:
  /// A stand-in for later blocks is not counted.
  bool is_small(std::size_t forwards) const { return forwards <= effort_.block + 1; }

  /// The same for a block: once as it is and once so that what it keeps while it waits counts.
  const std::vector<OpSequence>& solved(const BlockPart& part) {
    ++count_.met;
    const auto [place, fresh] = known_.try_emplace(shape_of(part.model));
    if (!fresh) return place->second;
    ++count_.solved;
    std::vector<OpSequence> sequences = solve(part.model, part.waiting);
    if (part.waiting && !is_small(*part.waiting + 1)) {
      OpModel waiting = part.model;
      const OpSequence all = every_op(waiting);
      waiting.ops[*part.waiting].ways.front().workspace = fullest_moment(waiting, all).peak;
      for (OpSequence& sequence : solve(waiting, part.waiting)) sequences.push_back(std::move(sequence));
    }
    return place->second = std::move(sequences);
  }

  std::vector<OpSequence> combine(const OpModel& model, const std::vector<BlockPart>& parts) {
    std::vector<std::vector<PricedSequence>> options;
    std::vector<Block> blocks;
    for (const BlockPart& part : parts) {
      options.push_back(best_options(part, solved(part), effort_.options));
      blocks.push_back(block_of(part, options.back()));
    }
    const Bytes most = fullest_moment(model, every_op(model)).peak - model.resident;
    const BlockTable table(blocks, OptionUse::anywhere, most, effort_.slots);
    std::vector<OpSequence> sequences{every_op(model)};
    for (std::size_t k = 0; k < table.plans(); ++k) {
      OpSequence sequence = sequence_of(parts, options, table.plan(k));
      if (is_runnable(model, sequence)) sequences.push_back(std::move(sequence));
    }
    return sequences;
  }

  static Block block_of(const BlockPart& part, const std::vector<PricedSequence>& options) {
    Block block{.x = part.input,
                .held = part.held,
                .first_forward = {},
                .later_forwards = {},
                .nograd = {},
                .recomputable = true,
                .options = {},
                .shared = part.input_shares};
    for (const PricedSequence& option : options) block.options.push_back(option.cost);
    if (!part.waiting) return block;
    OpSequence bare = part.bare;
    for (const OpRun& run : bare) {
      const ModelOp& op = part.model.ops[run.op.index];
      block.nograd += run.saving == Saving::keep ? op.ways.front().time : op.ways.back().time;
      block.recomputable = block.recomputable && !op.once;
    }
    bare.push_back({OpId{static_cast<std::uint32_t>(*part.waiting)}, Saving::keep});
    const std::vector<MemoryOfRun> memory = memory_of_runs(part.model, bare);
    for (std::size_t r = 0; r + 1 < bare.size(); ++r) {
      block.first_forward = std::max(block.first_forward, memory[r].during);
    }
    return block;
  }

  static OpSequence sequence_of(const std::vector<BlockPart>& parts,
                                const std::vector<std::vector<PricedSequence>>& options,
                                const std::vector<BlockStep>& steps) {
    OpSequence whole;
    for (const auto& [kind, b, option] : steps) {
      const BlockPart& part = parts[b];
      const bool bare = kind == BlockStep::Kind::forward_nothing;
      const OpSequence& sequence = bare ? part.bare : options[b][option].sequence;
      const auto wait = std::ranges::find_if(
          sequence, [&](const OpRun& run) { return part.waiting && run.op.index == *part.waiting; });
      const bool second = kind == BlockStep::Kind::backward_option;
      const auto first = second ? wait : sequence.begin(), last = second ? sequence.end() : wait;
      for (auto run = first; run != last; ++run) {
        if (const std::optional<OpId> origin = part.origin[run->op.index]) whole.push_back({*origin, run->saving});
      }
    }
    return whole;
  }

  BlockEffort effort_;
  BlockCount count_;
  std::map<std::vector<std::int64_t>, std::vector<OpSequence>> known_;  // by shape
};

}  // namespace

OpSequence every_op(const OpModel& model) {
  OpSequence sequence;
  for (const ModelOp& op : model.ops) sequence.push_back({op.id, Saving::keep});
  return sequence;
}

std::vector<OpSequence> leaf_sequences(const OpModel& model) {
  const std::size_t turn = last_forward(model);
  Evicted evicted(model.values.size(), false);
  std::vector<std::uint32_t> choices;
  for (std::uint32_t v = 0; v < model.values.size(); ++v) {
    const ModelValue& value = model.values[v];
    if (!can_evict(model, v)) continue;
    if (value.readers.empty() || value.readers.back() <= turn) {
      evicted[v] = true;  // dies by itself; made again only for others
    } else {
      choices.push_back(v);
    }
  }
  constexpr std::size_t most_choices = 10;
  std::vector<OpSequence> sequences{every_op(model)};
  if (choices.size() > most_choices) {
    constexpr std::int64_t steps = 1'000;
    greedy_sequences(model, steps, [&](const OpSequence& sequence) { sequences.push_back(sequence); });
    return sequences;
  }
  for (std::size_t set = 0; set < (std::size_t{1} << choices.size()); ++set) {
    for (std::size_t c = 0; c < choices.size(); ++c) evicted[choices[c]] = (set >> c) % 2 == 1;
    if (std::optional<OpSequence> sequence = recompute_order(model, evicted)) sequences.push_back(std::move(*sequence));
  }
  return sequences;
}

std::vector<PricedSequence> best_options(const BlockPart& part, const std::vector<OpSequence>& sequences,
                                         std::size_t count) {
  std::vector<PricedSequence> all;
  all.reserve(sequences.size());
  for (const OpSequence& sequence : sequences) all.push_back({sequence, cost_of(part, sequence)});
  const auto need = [](const BlockOption& cost) { return std::pair(std::max(cost.forward, cost.backward), cost.kept); };
  const auto kept = [](const BlockOption& cost) { return std::pair(cost.kept, std::max(cost.forward, cost.backward)); };
  std::vector<std::size_t> chosen = front(all, count, need);
  if (part.waiting) {
    const std::vector<std::size_t> more = front(all, count, kept);
    chosen.insert(chosen.end(), more.begin(), more.end());
  }
  std::ranges::sort(chosen);
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  std::vector<PricedSequence> best;
  best.reserve(chosen.size());
  for (const std::size_t k : chosen) best.push_back(std::move(all[k]));
  return best;
}

BlockCount block_sequences(const OpModel& model, const BlockEffort& effort,
                           const std::function<void(const OpSequence&)>& take) {
  OpModel numbered = model;
  for (std::size_t o = 0; o < numbered.ops.size(); ++o) numbered.ops[o].id = OpId{static_cast<std::uint32_t>(o)};
  Hierarchy hierarchy(effort);
  for (OpSequence sequence : hierarchy.solve(numbered)) {
    if (!is_runnable(numbered, sequence)) continue;
    for (OpRun& run : sequence) run.op = model.ops[run.op.index].id;
    take(sequence);
  }
  return hierarchy.count();
}

}  // namespace plimsoll
