#include "strategies/rematerialization/rockmate/rockmate_graph.h"

#include <algorithm>
#include <map>

#include "strategies/models/fullest_moment.h"
#include "strategies/models/recompute_order.h"
#include "strategies/rematerialization/programs/checkmate_rounding.h"
#include "strategies/rematerialization/rockmate/graph_blocks.h"
#include "strategies/rematerialization/rockmate/graph_options.h"

namespace plimsoll {
namespace {

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
