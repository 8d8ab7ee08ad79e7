#include "strategies/compression/stage_forms.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "strategies/models/chain_part.h"
#include "strategies/rematerialization/rotor/block_table.h"
#include "strategies/rematerialization/rotor/rotor_conditions.h"

namespace plimsoll {
namespace {

/// Forms for the values of a stage, and what they save against all values as
/// they are.
struct StageWay {
  std::vector<std::pair<std::size_t, std::uint32_t>> forms;  ///< (saved value, form)
  Bytes waiting, reading;                                    ///< saved between the two phases, and in the backward
  Bytes packed;                                              ///< the largest packed form
  double cost = 0;                                           ///< seconds, the error's price included
};

/// As many as that of many, the first and the last among them.
template <class T>
std::vector<T> spread(std::vector<T> all, std::size_t most) {
  if (all.size() <= most) return all;
  std::vector<T> some;
  for (std::size_t k = 0; k < most; ++k) some.push_back(std::move(all[k * (all.size() - 1) / (most - 1)]));
  return some;
}

class StageWays {
 public:
  StageWays(const Graph& graph, const ChainGraph& index, const OffloadModel& model, std::span<const SavedTensor> saved,
            const KeptForms& kept_forms)
      : kept_forms_(kept_forms), of_(index.forward.size()) {
    std::map<OpId, std::size_t> stage_of;
    for (std::size_t s = 0; s < index.backward.size(); ++s) {
      if (index.backward[s] != no_op) stage_of[index.backward[s]] = s;
    }
    for (std::size_t i = 0; i < saved.size(); ++i) {
      const SavedUse& first = saved[i].uses.front();
      const auto found = stage_of.find(first.op);
      if (found == stage_of.end()) continue;
      const bool is_made_there = model.computes[saved[i].from].op == index.forward[found->second];
      if (!is_made_there)
        continue;  // the last that uses it before its backward is that stage's
                   // forward
      of_[found->second].push_back({i, graph[saved[i].tensor].bytes, saved[i].from, first.position});
    }
  }

  /// Those of which none saves as much between the phases at less cost; the
  /// first: all as it is.
  std::vector<StageWay> ways(std::size_t stage, double price, std::size_t most) const {
    std::vector<StageWay> ways(1);
    for (const StageValue& value : of_[stage]) {
      std::vector<StageWay> longer;
      for (const StageWay& way : ways) {
        for (std::uint32_t form = 0; form < kept_forms_[value.index].forms.size(); ++form) {
          if (!kept_forms_[value.index].forms[form].again) longer.push_back(with(way, value, form, price));
        }
      }
      std::ranges::stable_sort(longer, {}, [](const StageWay& w) { return std::pair(w.waiting, w.reading); });
      std::vector<StageWay> best;  // from the end: what saves less must cost less
      for (std::size_t w = longer.size(); w-- > 0;) {
        if (best.empty() || longer[w].cost < best.back().cost) best.push_back(std::move(longer[w]));
      }
      std::ranges::reverse(best);
      constexpr std::size_t most_between = 64;
      ways = spread(std::move(best), most_between);
    }
    return spread(std::move(ways), most);
  }

 private:
  /// A value that the stage's backward is the first to read.
  struct StageValue {
    std::size_t index;
    Bytes bytes;
    std::uint32_t from, until;  ///< positions of forward and backward
  };

  StageWay with(StageWay way, const StageValue& value, std::uint32_t form, double price) const {
    const KeptForms::Value& kept = kept_forms_[value.index];
    way.forms.emplace_back(value.index, form);
    Bytes waiting;
    for (const FreedRange& range : kept.freed[form]) {
      if (range.begin <= value.from + 1 && value.from + 1 < range.end && value.from + 1 < value.until) {
        waiting += range.bytes;
      }
      if (range.begin <= value.until && value.until < range.end) way.reading += range.bytes;
    }
    way.waiting += waiting;
    if (form > 0) way.packed = std::max(way.packed, value.bytes - waiting);
    way.cost += kept.forms[form].time.value + price * kept.forms[form].square;
    return way;
  }

  const KeptForms& kept_forms_;
  std::vector<std::vector<StageValue>> of_;  // by stage
};

std::int64_t slots_for(std::size_t stages, const StageEffort& effort) {
  const std::size_t choices = effort.ways + (effort.recomputes ? stages / 3 : 0);
  const std::size_t cells = stages * (stages + 1) / 2 * choices;
  return std::clamp<std::int64_t>(effort.cells / static_cast<std::int64_t>(cells), 30, 500);
}

/// A stage as a block of the recursion: an option for each of its ways.
Block packing_block(const ChainModel& model, const RotorConditions& conditions, std::size_t i,
                    const std::vector<StageWay>& ways) {
  const Bytes made = model.input_gradient[i] + model.new_gradients[i] + model.backward_workspace[i];
  const Bytes backward = conditions.backward(i);
  Block block{.x = model.x[i],
              .held = conditions.held(i),
              .first_forward = conditions.null_step(i, i),
              .later_forwards = {},
              .nograd = model.nograd[i],
              .recomputable = model.recomputable[i],
              .options = {}};
  for (const StageWay& way : ways) {
    block.options.push_back({.kept = std::max(Bytes{0}, conditions.kept(i) - way.waiting),
                             .forward = std::max(conditions.forward(i), model.saved[i] + way.packed),
                             .backward = std::max(backward - way.reading, backward - made + way.packed),
                             .extra = Seconds{way.cost}});
  }
  return block;
}

/// The rows of steps of a table, and the forms of the ways in it.
PackedStages packed_stages(const std::vector<BlockStep>& steps, const std::vector<std::vector<StageWay>>& ways,
                           std::size_t values) {
  using Kind = BlockStep::Kind;
  PackedStages plan{{}, std::vector<std::uint32_t>(values, 0)};
  for (const BlockStep& step : steps) {
    switch (step.kind) {
      case Kind::forward_nothing:
        plan.sequence.push_back({ChainStep::Kind::forward, step.block});
        break;
      case Kind::forward_option:
        plan.sequence.push_back({ChainStep::Kind::forward_saving, step.block});
        for (const auto& [value, form] : ways[step.block][step.option].forms) plan.forms[value] = form;
        break;
      case Kind::backward_option:
        plan.sequence.push_back({ChainStep::Kind::backward, step.block});
        break;
    }
  }
  return plan;
}

}  // namespace

std::vector<PackedStages> stage_plans(const PartTask& task, const OffloadModel& plain,
                                      std::span<const SavedTensor> saved, const KeptForms& kept_forms,
                                      std::span<const double> prices, const StageEffort& effort) {
  const ChainPart part = chain_part(task.problem, task.part());
  ChainModel model = chain_model(task.problem, part);
  if (!effort.recomputes) model.recomputable.assign(model.stages(), false);
  const RotorConditions conditions(model);
  const StageWays all_ways(task.problem.graph, *task.problem.index, plain, saved, kept_forms);
  const Bytes most = evaluate(model, store_all_sequence(model.stages())).peak - model.resident - model.x[0];
  std::vector<PackedStages> plans;
  for (const double price : prices) {
    std::vector<std::vector<StageWay>> ways;
    std::vector<Block> blocks;
    Bytes packing;
    for (std::size_t i = 0; i < model.stages(); ++i) {
      ways.push_back(all_ways.ways(part.first + part.forward_only + i, price, effort.ways));
      blocks.push_back(packing_block(model, conditions, i, ways.back()));
      for (const StageWay& way : ways.back()) packing = std::max(packing, way.packed);
    }
    const BlockTable table(blocks, OptionUse::anywhere, most + packing, slots_for(blocks.size(), effort));
    std::vector<std::size_t> chosen(table.plans());
    for (std::size_t k = 0; k < chosen.size(); ++k) chosen[k] = k;
    for (const std::size_t k : spread(std::move(chosen), effort.plans)) {
      plans.push_back(packed_stages(table.plan(k), ways, kept_forms.size()));
    }
  }
  return plans;
}

}  // namespace plimsoll
