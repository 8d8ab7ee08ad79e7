#include "strategies/compose/parts/passes.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "sim/core/expects.h"
#include "sim/io/input_error.h"
#include "sim/model/graph_updates.h"
#include "sim/model/same_tape.h"
#include "strategies/api/front.h"
#include "strategies/api/own_moves.h"
#include "strategies/list.h"

namespace plimsoll {
namespace {

/// From the least memory they can do with to all they want, each once.
std::vector<PlannedTape> tapes_over_range(const Asked& asked, std::uint32_t levels) {
  std::vector<PlannedTape> tapes;
  for (PlannedTape& made : asked_over_range(asked, levels).tapes) {
    const auto is_same = [&](const PlannedTape& tape) { return same(tape.tape, made.tape); };
    if (std::ranges::none_of(tapes, is_same)) tapes.push_back(std::move(made));
  }
  return tapes;
}

/// What a pass would move to the host by itself, if it were the last, is left to the offloading pass behind it: what
/// one has moved, no second one does.
std::vector<Pass> leaving_moves_to(const Pass& offloading, std::span<const Pass> before) {
  std::vector<Pass> passes(before.begin(), before.end());
  if (offloading.strategy->moves_parameters()) return passes;
  for (Pass& pass : passes) {
    const OwnMovesOptions* own = pass.options.get_if<OwnMovesOptions>();
    if (own == nullptr || own->offload != OwnMoves::automatic) continue;
    pass.options.change<OwnMovesOptions>().offload = OwnMoves::no;
  }
  return passes;
}

/// An offloading pass and those before it. These make tapes for several budgets; all are offloaded from, and the
/// fastest within the asked budget is taken: to offload from them may be faster than to do without.
class OffloadedPasses {
 public:
  OffloadedPasses(const PartTask& task, std::span<const Pass> passes, const Pass& offloading)
      : task_(task),
        before_(leaving_moves_to(offloading, passes)),
        offloading_(offloading),
        unmoved_(asked_of_passes(task, before_)) {}

  /// What the passes before make for the asked budget itself counts where it is left as fast as it is, so that less
  /// memory is never faster.
  std::vector<TapeOutcome> within(std::span<const std::optional<Bytes>> budgets) {
    if (tapes_.empty()) make_tapes();
    std::vector<TapeOutcome> plain = unmoved_(budgets);
    if (tapes_.empty()) return plain;
    std::vector<TapeOutcome> best = tapes_.front().offloaded(budgets);
    for (const OffloadedTape& each : std::span(tapes_).subspan(1)) keep_better(best, each.offloaded(budgets));
    for (std::size_t b = 0; b < budgets.size(); ++b) {
      const PlannedTape* tape = std::get_if<PlannedTape>(&plain[b]);
      if (tape == nullptr || !is_better(plain[b], best[b])) continue;
      TapeOutcome made = asked(tape->tape)(budgets.subspan(b, 1)).front();
      const PlannedTape* kept = std::get_if<PlannedTape>(&made);
      if (kept != nullptr && kept->makespan <= tape->makespan) best[b] = std::move(made);
    }
    for (TapeOutcome& outcome : best) {  // a gap is that of one tape's offloading, not of the passes together
      if (PlannedTape* tape = std::get_if<PlannedTape>(&outcome)) tape->gap.reset();
    }
    return best;
  }

 private:
  struct OffloadedTape {
    std::shared_ptr<const Tape> tape;
    Asked offloaded;  // from it
  };

  Asked asked(const Tape& tape) const { return offloading_.strategy->asked(task_, offloading_.options, &tape); }

  /// Where the last of the passes before moves activations, those without it, too: what moves parameters may make its
  /// copies needless.
  void make_tapes() {
    // A strategy with many plans chooses again for each tape; of one with a single plan the tapes' levels are all there
    // are.
    const bool has_many_plans = offloading_.strategy->names_candidates() || !offloading_.strategy->moves_parameters();
    const std::uint32_t levels = has_many_plans ? 10 : 24;
    add(tapes_over_range(unmoved_, levels));
    if (before_.back().strategy->family != Family::offloading) return;
    const Pass plain = pass_of(store_all_strategy);
    const std::span<const Pass> all = before_;
    add(tapes_over_range(asked_of_passes(task_, all.size() > 1 ? all.first(all.size() - 1) : std::span(&plain, 1)),
                         levels));
  }

  void add(std::vector<PlannedTape> tapes) {
    for (PlannedTape& each : tapes) {
      const auto tape = std::make_shared<const Tape>(std::move(each.tape));
      tapes_.push_back({tape, asked(*tape)});
    }
  }

  const PartTask& task_;
  std::vector<Pass> before_;
  Pass offloading_;
  Asked unmoved_;  // of the passes before
  std::vector<OffloadedTape> tapes_;
};

}  // namespace

void judge(const Problem& problem, std::span<const Pass> passes) {
  for (const Pass& pass : passes) {
    if (pass.strategy->chains_only && !problem.chain) {
      throw InputError(fmt::format(
          "strategy '{0}' works on chain traces only, and '{1}' is a graph trace; 'chain|{0}' cuts it into stages",
          pass.strategy->name, problem.graph.name));
    }
    const bool packs = pass.strategy->family == Family::compression && problem.chain.has_value();
    if (packs && !pass.strategy->packs_stages()) {
      throw InputError(
          fmt::format("strategy '{}' chooses by ops, and {}", pass.strategy->name,
                      problem.of_ops ? "behind a pipeline or 'chain' the ops of '" + problem.graph.name + "' are stages"
                                     : "'" + problem.graph.name + "' is a chain"));
    }
    if (packs && !lists_saved(*problem.chain)) {
      throw InputError(fmt::format(
          "strategy '{}' chooses among the tensors that stages save, and the stages {} '{}' list none",
          pass.strategy->name, problem.of_ops ? "that a pipeline or 'chain' makes of" : "of", problem.graph.name));
    }
    const Graph& ops = problem.of_ops ? *problem.of_ops : problem.graph;
    if (const auto op = pass.strategy->partitions() ? early_reader_of_gradients(ops) : std::nullopt) {
      throw InputError(fmt::format("{}: op '{}' reads parameter gradients before the update, and parts hand none on",
                                   pass.strategy->name, ops[*op].name));
    }
    const bool updates = std::ranges::any_of(problem.graph.ops, updates_parameters);
    if (pass.strategy->needs_updates && !updates) {
      throw InputError(fmt::format("strategy '{}' places parameter updates, and there are none: give an --optimizer",
                                   pass.strategy->name));
    }
  }
}

bool plan_parts_themselves(std::span<const Pass> passes) {
  return std::ranges::all_of(passes, [](const Pass& pass) { return pass.strategy->plans_parts(); });
}

Asked asked_of_passes(const PartTask& task, std::span<const Pass> passes) {
  const bool is_of_pipeline = task.partition.parts.size() > 1 || task.part().cut_before_backward;
  EXPECTS(!is_of_pipeline || plan_parts_themselves(passes));
  const Pass& last = passes.back();
  if (passes.size() == 1) return last.strategy->asked(task, last.options, nullptr);
  const std::span<const Pass> before = passes.first(passes.size() - 1);
  const bool changes_tapes =
      last.strategy->family == Family::offloading || last.strategy->family == Family::compression;
  if (changes_tapes) {
    const auto all = std::make_shared<OffloadedPasses>(task, before, last);
    return [all](std::span<const std::optional<Bytes>> budgets) { return all->within(budgets); };
  }
  return [&task, last, asked = asked_of_passes(task, before)](std::span<const std::optional<Bytes>> budgets) {
    std::vector<TapeOutcome> tapes = asked(budgets);
    for (std::size_t b = 0; b < budgets.size(); ++b) {
      const PlannedTape* made = std::get_if<PlannedTape>(&tapes[b]);
      if (made == nullptr) continue;
      tapes[b] = last.strategy->tapes(task, last.options, budgets.subspan(b, 1), &made->tape).front();
    }
    return tapes;
  };
}

std::vector<TapeOutcome> tapes_of_passes(const PartTask& task, std::span<const Pass> passes,
                                         std::span<const std::optional<Bytes>> budgets) {
  return asked_of_passes(task, passes)(budgets);
}

std::vector<TapeOutcome> judged_tapes_of_passes(const PartTask& task, std::span<const Pass> passes,
                                                std::span<const std::optional<Bytes>> budgets) {
  judge(task.problem, passes);
  return tapes_of_passes(task, passes, budgets);
}

TapeOutcome tape_of_passes(const PartTask& task, std::span<const Pass> passes, std::optional<Bytes> budget) {
  return std::move(tapes_of_passes(task, passes, std::span(&budget, 1)).front());
}

}  // namespace plimsoll
