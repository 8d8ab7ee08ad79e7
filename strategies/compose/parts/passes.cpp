#include "strategies/compose/parts/passes.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "sim/core/expects.h"
#include "sim/io/input_error.h"
#include "sim/model/graph_updates.h"
#include "sim/model/same_tape.h"
#include "strategies/api/front.h"
#include "strategies/api/own_moves.h"
#include "strategies/list.h"

namespace plimsoll {
namespace {

std::vector<TapeOutcome> offloaded(const PartTask&, std::span<const Pass> before, const Pass& offloading,
                                   std::span<const std::optional<Bytes>> budgets);

/// Tapes of the passes before an offloading one, from the least memory they can do with to all they want: to offload
/// from them may be faster than to do without.
std::vector<PlannedTape> tapes_to_offload(const PartTask& task, std::span<const Pass> passes, std::uint32_t levels) {
  std::vector<PlannedTape> all =
      asked_over_range([&](auto budgets) { return tapes_of_passes(task, passes, budgets); }, levels).tapes;
  std::vector<PlannedTape> tapes;
  for (PlannedTape& made : all) {
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

/// The same, and where the last of the passes moves activations, those without it: what moves parameters may make
/// its copies needless.
std::vector<PlannedTape> tapes_with_and_without(const PartTask& task, std::span<const Pass> passes,
                                                std::uint32_t levels) {
  std::vector<PlannedTape> tapes = tapes_to_offload(task, passes, levels);
  if (passes.back().strategy->family != Family::offloading) return tapes;
  const Pass plain = pass_of(store_all_strategy);
  const std::span<const Pass> without = passes.size() > 1 ? passes.first(passes.size() - 1) : std::span(&plain, 1);
  std::ranges::move(tapes_to_offload(task, without, levels), std::back_inserter(tapes));
  return tapes;
}

/// The passes before the offloading one make tapes for several budgets; all are offloaded from, and the fastest within
/// the asked budget is taken. What they make for the asked budget itself counts where it is left as fast as it is, so
/// that less memory is never faster.
std::vector<TapeOutcome> offloaded(const PartTask& task, std::span<const Pass> passes, const Pass& offloading,
                                   std::span<const std::optional<Bytes>> budgets) {
  const std::vector<Pass> before = leaving_moves_to(offloading, passes);
  // A strategy with many plans chooses again for each tape; of one with a single plan the tapes' levels are all there
  // are.
  const bool has_many_plans = offloading.strategy->names_candidates() || !offloading.strategy->moves_parameters();
  const std::uint32_t levels = has_many_plans ? 10 : 24;
  std::vector<TapeOutcome> best;
  for (const PlannedTape& tape : tapes_with_and_without(task, before, levels)) {
    std::vector<TapeOutcome> made = offloading.strategy->tapes(task, offloading.options, budgets, &tape.tape);
    if (best.empty()) {
      best = std::move(made);
    } else {
      keep_better(best, std::move(made));
    }
  }
  std::vector<TapeOutcome> plain = tapes_of_passes(task, before, budgets);
  if (best.empty()) return plain;
  for (std::size_t b = 0; b < budgets.size(); ++b) {
    const PlannedTape* tape = std::get_if<PlannedTape>(&plain[b]);
    if (tape == nullptr || !is_better(plain[b], best[b])) continue;
    TapeOutcome made = offloading.strategy->tapes(task, offloading.options, budgets.subspan(b, 1), &tape->tape).front();
    const PlannedTape* kept = std::get_if<PlannedTape>(&made);
    if (kept != nullptr && kept->makespan <= tape->makespan) best[b] = std::move(made);
  }
  for (TapeOutcome& outcome : best) {  // a gap is that of one tape's offloading, not of the passes together
    if (PlannedTape* tape = std::get_if<PlannedTape>(&outcome)) tape->gap.reset();
  }
  return best;
}

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

std::vector<TapeOutcome> tapes_of_passes(const PartTask& task, std::span<const Pass> passes,
                                         std::span<const std::optional<Bytes>> budgets) {
  const bool is_of_pipeline = task.partition.parts.size() > 1 || task.part().cut_before_backward;
  EXPECTS(!is_of_pipeline || plan_parts_themselves(passes));
  const Pass& last = passes.back();
  if (passes.size() == 1) return last.strategy->tapes(task, last.options, budgets, nullptr);
  const std::span<const Pass> before = passes.first(passes.size() - 1);
  const bool changes_tapes =
      last.strategy->family == Family::offloading || last.strategy->family == Family::compression;
  if (changes_tapes) return offloaded(task, before, last, budgets);
  std::vector<TapeOutcome> tapes = tapes_of_passes(task, before, budgets);
  for (std::size_t b = 0; b < budgets.size(); ++b) {
    const PlannedTape* made = std::get_if<PlannedTape>(&tapes[b]);
    if (made == nullptr) continue;
    tapes[b] = last.strategy->tapes(task, last.options, budgets.subspan(b, 1), &made->tape).front();
  }
  return tapes;
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
