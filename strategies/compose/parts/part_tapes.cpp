#include "strategies/compose/parts/part_tapes.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "sim/core/op_attribute.h"
#include "sim/core/tolerance.h"
#include "sim/measure/lower_bounds.h"
#include "sim/model/graph_updates.h"
#include "strategies/compose/parts/passes.h"
#include "strategies/list.h"
#include "strategies/models/chain_part.h"
#include "strategies/models/chain_pass.h"
#include "strategies/models/op_sequence.h"
#include "strategies/models/part_alone.h"
#include "strategies/models/tape_cost.h"

namespace plimsoll {
namespace {

constexpr std::uint32_t levels_before = 5, levels_alone = 12, levels_at_once = 16;

bool packs(std::span<const Pass> passes) {
  return std::ranges::any_of(passes, [](const Pass& pass) { return pass.strategy->family == Family::compression; });
}

class PassesOnPart {
 public:
  PassesOnPart(const PartTask& task, const Others& others, std::span<const Pass> passes)
      : task_(task),
        others_(others),
        alone_(task.problem.chain ? part_alone(task, others) : graph_part_alone(task)),
        alone_task_{alone_.problem, alone_.partition, PartId{0}},
        passes_(passes.begin(), passes.end()) {
    if (!has_updates()) std::erase_if(passes_, [](const Pass& pass) { return pass.strategy->needs_updates; });
    if (passes_.empty()) passes_.push_back(pass_of(store_all_strategy));
    const auto plans_whole = [&](const Pass& pass) { return !task.problem.chain || !pass.strategy->plans_parts(); };
    const auto first = std::ranges::find_if(passes_, plans_whole);
    themselves_ = std::span(passes_.begin(), first);
    alone_passes_ = std::span(first, passes_.end());
    also_resident_ =
        tape_cost(task.problem, task.part(), Tape{}).peak - tape_cost(alone_.problem, alone_task_.part(), Tape{}).peak;
  }

  /// Adds to what there is; says why where it has nothing to add.
  std::string add_to(std::optional<PartTapes>& plans) {
    made_ = std::move(plans);
    if (alone_passes_.empty()) {
      for (PlannedTape& made : over_range(asked_of_passes(task_, themselves_), levels_alone)) add(std::move(made));
    } else if (themselves_.empty()) {
      unmoved_ = tape_of_ops(alone_task_.problem.graph, store_all_ops(alone_task_));
      add_all(asked_of_passes(alone_task_, alone_passes_));
    } else {
      for (const PlannedTape& each : over_range(asked_of_passes(task_, themselves_), levels_before)) {
        const Tape tape = tape_alone(alone_, each.tape);
        if (!unmoved_) unmoved_ = tape;
        add_all([&](std::span<const std::optional<Bytes>> budgets) { return after(tape, budgets); });
      }
    }
    if (made_) made_->has_updates = has_updates();
    plans = std::move(made_);
    return why_;
  }

 private:
  bool has_updates() const { return std::ranges::any_of(alone_.problem.graph.ops, updates_parameters); }

  PartTape tape_of_part(const Tape& tape) const {
    return task_.problem.chain ? tape_in_pipeline(task_, alone_, tape)
                               : PartTape{tape_with_exchanges(alone_, tape), {}};
  }

  /// What the passes make of a tape, one after the other.
  std::vector<TapeOutcome> after(const Tape& tape, std::span<const std::optional<Bytes>> budgets) const {
    const auto asked = [&](const Pass& pass, std::span<const std::optional<Bytes>> within, const Tape& before) {
      return pass.strategy->tapes(alone_task_, pass.options, within, &before);
    };
    std::vector<TapeOutcome> outcomes = asked(alone_passes_.front(), budgets, tape);
    for (const Pass& pass : alone_passes_.subspan(1)) {
      for (std::size_t b = 0; b < budgets.size(); ++b) {
        const PlannedTape* made = std::get_if<PlannedTape>(&outcomes[b]);
        if (made != nullptr) outcomes[b] = asked(pass, budgets.subspan(b, 1), made->tape).front();
      }
    }
    return outcomes;
  }

  /// What moves values for nothing alone may not in the pipeline: where all memory is there, they stay. Nothing where
  /// the plan is right as it is: a rule that runs ops again though memory is there holds here as well.
  std::optional<PlannedTape> unmoved(const PlannedTape& made) const {
    const bool moves_parameters =
        std::ranges::any_of(alone_passes_, [](const Pass& pass) { return pass.strategy->moves_parameters(); });
    if (!unmoved_ || moves_parameters || packs(alone_passes_)) return std::nullopt;
    const TapeCost cost = tape_cost(alone_.problem, alone_task_.part(), *unmoved_);
    if (cost.makespan > (1 + model_tolerance) * made.makespan) return std::nullopt;
    const bool moves = alone_passes_.back().strategy->family == Family::offloading;
    if (!moves && made.makespan > (1 + model_tolerance) * cost.makespan) return std::nullopt;
    return PlannedTape{*unmoved_, cost.peak, made.makespan, std::nullopt};
  }

  std::vector<PlannedTape> over_range(const Asked& asked, std::uint32_t count) {
    RangeOfTapes range = asked_over_range(asked, count);
    if (range.tapes.empty()) why_ = std::move(range.reason);
    return std::move(range.tapes);
  }

  /// The same in one question, from what no tape can do without.
  std::vector<PlannedTape> at_once(const Asked& asked) {
    const Bytes least = lower_bounds(alone_.problem, 1, Stays::nothing).memory;
    const Bytes most = tape_cost(alone_.problem, alone_task_.part(), *unmoved_).peak;
    std::vector<std::optional<Bytes>> budgets{std::nullopt};
    std::ranges::copy(budgets_between(std::min(least, most), most, levels_at_once), std::back_inserter(budgets));
    std::vector<TapeOutcome> outcomes = asked(budgets);
    if (const Infeasible* none = std::get_if<Infeasible>(&outcomes.front())) {
      why_ = none->reason;
      return {};
    }
    return tapes_among(std::move(outcomes));
  }

  /// What takes long is asked once, but for what packs: the bound is on memory for values as they are.
  std::vector<PlannedTape> asked_alone(const Asked& asked) {
    const std::size_t stages = alone_.problem.chain ? alone_.problem.chain->stages.size() : 0;
    const bool takes_long = std::ranges::any_of(alone_passes_, [&](const Pass& pass) {
      return 4 * stages > pass.strategy->effort.stages;  // of what a portfolio asks it about
    });
    return takes_long && !packs(alone_passes_) ? at_once(asked) : over_range(asked, levels_alone);
  }

  void add_all(const Asked& asked) {
    for (const PlannedTape& made : asked_alone(asked)) {
      if (!made_) {
        if (const std::optional<PlannedTape> first = unmoved(made)) add_alone(*first);
      }
      add_alone(made);
    }
  }

  void add_alone(const PlannedTape& made) {
    PlannedTape planned = made;
    PartTape part = tape_of_part(made.tape);
    planned.tape = std::move(part.tape);
    if (std::optional<std::string> shared = moves_shared(task_, planned.tape)) {
      why_ = std::move(*shared);
      return;
    }
    planned.gap.reset();
    TapeCost cost = tape_cost(task_.problem, task_.part(), planned.tape);
    if (others_.bytes == Bytes{0}) cost.peak = made.peak + also_resident_;  // else what they take would count twice
    planned.peak = peak_in_flight(cost, task_) + part.on_the_way;
    add(std::move(planned));
  }

  void add(PlannedTape planned) {
    if (!made_) made_.emplace(planned);
    made_->fastest.add(std::move(planned));
  }

  const PartTask& task_;
  Others others_;
  PartAlone alone_;
  PartTask alone_task_;
  std::vector<Pass> passes_;
  std::span<const Pass> themselves_, alone_passes_;
  Bytes also_resident_;          // of shared parameters, which are not updated alone
  std::optional<Tape> unmoved_;  // alone, by the passes before the first that plans whole models
  std::optional<PartTapes> made_;
  std::string why_;
};

/// What the plans of a part depend on.
std::vector<std::uint32_t> key_on_chain(const PartTask& task) {
  const Part& part = task.part();
  const ChainPart stages = chain_part(task.problem, part);
  const auto part_at = [&](std::size_t stage) { return part_of_stage(task.problem, task.partition, stage).index; };
  std::vector<std::uint32_t> key{part.ops.front().index,
                                 static_cast<std::uint32_t>(part.ops.size()),
                                 part.device.index,
                                 task.id.index,
                                 static_cast<std::uint32_t>(task.partition.parts.size()),
                                 task.in_flight,
                                 task.weights_waiting,
                                 part.cut_before_weights ? 1U : 0U};
  if (stages.first > 0) key.push_back(part_at(stages.first - 1));
  if (stages.last < task.problem.chain->stages.size()) key.push_back(part_at(stages.last));
  return key;
}

std::vector<std::uint32_t> key_on_graph(const PartTask& task) {
  const Part& part = task.part();
  std::vector<std::uint32_t> key{part.device.index, task.id.index, static_cast<std::uint32_t>(part.ops.size()),
                                 static_cast<std::uint32_t>(part.sends.size())};
  for (const OpId op : part.ops) key.push_back(op.index);
  for (const std::vector<Crossing>* exchanges : {&part.sends, &part.receives}) {
    for (const Crossing& each : *exchanges) key.insert(key.end(), {each.op.index, each.tensor.index, each.peer.index});
  }
  return key;
}

}  // namespace

std::vector<TapeOutcome> PartTapes::outcomes(std::span<const std::optional<Bytes>> budgets) const {
  std::vector<TapeOutcome> outcomes;
  outcomes.reserve(budgets.size());
  for (const std::optional<Bytes>& budget : budgets) outcomes.push_back(within(budget));
  return outcomes;
}

TapeOutcome PartTapes::within(std::optional<Bytes> budget) const {
  if (!budget || unlimited.peak <= *budget) return unlimited;
  const PlannedTape* tape = fastest.at(budget);
  if (tape != nullptr) return *tape;
  return Infeasible{"no tape of the part that was tried needs less", std::min(fastest.least(), unlimited.peak)};
}

std::variant<PartTapes, std::string> tapes_of_part(const PartTask& task, std::span<const Pass> passes) {
  const auto is_pinned = [&](OpId op) { return is_pinned_to_host(task.problem.graph[op]); };
  if (std::ranges::any_of(task.part().ops, is_pinned)) return "some of its ops are pinned to the host";
  std::optional<PartTapes> plans;
  std::string why = PassesOnPart(task, {}, passes).add_to(plans);
  if (plans && task.in_flight > 1) {
    const Bytes kept =
        tape_cost(task.problem, task.part(), packs(passes) ? plans->unlimited.tape : plain_tape(task)).kept;
    for (const bool to_the_end : {false, true}) {
      PassesOnPart(task, {(task.in_flight - 1) * kept, to_the_end}, passes).add_to(plans);
    }
  }
  if (!plans) return why;
  return std::move(*plans);
}

const std::variant<PartTapes, std::string>& KnownPartTapes::of(const PartTask& task) {
  std::vector<std::uint32_t> key = task.problem.chain ? key_on_chain(task) : key_on_graph(task);
  const auto found = kept_.find(key);
  if (found != kept_.end()) return found->second;
  return kept_.emplace(std::move(key), tapes_of_part(task, passes_)).first->second;
}

}  // namespace plimsoll
