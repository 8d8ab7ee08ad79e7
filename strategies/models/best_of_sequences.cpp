#include "strategies/models/best_of_sequences.h"

#include <algorithm>
#include <string>

#include "sim/core/expects.h"
#include "strategies/api/front.h"

namespace plimsoll {
namespace {

using Kind = ChainStep::Kind;

FrontOf<std::size_t> front_of(const PartTask& task, const TapeFamily& family) {
  FrontOf<std::size_t> front;
  for (std::size_t k = 0; k < family.costs.size(); ++k) {
    front.add(peak_in_flight(family.costs[k], task), family.costs[k].makespan, k);
  }
  return front;
}

std::size_t runs_in(const Tape& tape) {
  return static_cast<std::size_t>(std::ranges::count(tape.actions, ActionKind::run, &Action::kind));
}

/// Of the fastest plans the one that runs the fewest ops.
std::size_t fewest_runs_of_fastest(const TapeFamily& family) {
  const Seconds fastest = std::ranges::min_element(family.costs, {}, &TapeCost::makespan)->makespan;
  std::size_t best = 0, fewest = no_size_limit;
  for (std::size_t k = 0; k < family.costs.size(); ++k) {
    if (family.costs[k].makespan > fastest) continue;
    const std::size_t runs = runs_in(family.tape(k));
    if (runs >= fewest) continue;
    fewest = runs;
    best = k;
  }
  return best;
}

TapeFamily tapes_of(const PartTask& task, const SequenceFamily& family) {
  const ChainPart chain = chain_part(task.problem, task.part());
  const auto tape = [&task, &family, chain, model = chain_model(task.problem, chain)](std::size_t k) {
    return chain_tape(task.problem, task.partition, task.id, chain,
                      without_forbidden_repeats(model, family.sequence(k)));
  };
  TapeFamily tapes{family.name, {}, tape};
  for (std::size_t k = 0; k < family.count; ++k) tapes.costs.push_back(tape_cost(task.problem, task.part(), tape(k)));
  return tapes;
}

/// Whether step t makes an x that a later step reads before it is made anew.
std::vector<bool> useful(const ChainModel& model, const ChainSequence& sequence) {
  std::vector<bool> reads_later(model.stages() + 1, false), result(sequence.size(), true);
  for (std::size_t t = sequence.size(); t-- > 0;) {
    const auto [kind, i] = sequence[t];
    if (kind == Kind::forward) {
      result[t] = reads_later[i + 1];
      if (!result[t]) continue;
    }
    if (kind != Kind::backward) reads_later[i + 1] = false;
    reads_later[i] = true;
  }
  return result;
}

}  // namespace

std::vector<TapeOutcome> best_of_tapes(const PartTask& task, const TapeFamily& family,
                                       std::span<const std::optional<Bytes>> budgets) {
  const FrontOf<std::size_t> front = front_of(task, family);
  EXPECTS(!front.empty());
  const auto planned = [&](std::size_t k) {
    return PlannedTape{family.tape(k), peak_in_flight(family.costs[k], task), family.costs[k].makespan, std::nullopt};
  };
  std::vector<TapeOutcome> outcomes =
      front.outcomes(budgets, "none of the schedules of " + std::string(family.name) + " fits", planned);
  // What is recomputed in no time of the part's own comes later for the part before it.
  const bool has_neighbours = task.partition.parts.size() > 1;
  for (std::size_t b = 0; b < budgets.size(); ++b) {
    if (has_neighbours && !budgets[b]) outcomes[b] = planned(fewest_runs_of_fastest(family));
  }
  return outcomes;
}

std::vector<Bytes> budgets_of_tapes(const PartTask& task, const TapeFamily& family) {
  return front_of(task, family).budgets();
}

std::vector<TapeOutcome> best_of_sequences(const PartTask& task, const SequenceFamily& family,
                                           std::span<const std::optional<Bytes>> budgets) {
  return best_of_tapes(task, tapes_of(task, family), budgets);
}

std::vector<Bytes> budgets_of_sequences(const PartTask& task, const SequenceFamily& family) {
  return budgets_of_tapes(task, tapes_of(task, family));
}

ChainSequence without_forbidden_repeats(const ChainModel& model, ChainSequence sequence) {
  if (std::ranges::find(model.recomputable, false) == model.recomputable.end()) return sequence;
  std::vector<bool> ran(model.stages(), false);
  std::erase_if(sequence, [&](ChainStep& step) {
    if (step.kind == Kind::backward || model.recomputable[step.stage]) return false;
    step.kind = Kind::forward_saving;
    const bool again = ran[step.stage];
    ran[step.stage] = true;
    return again;
  });
  const std::vector<bool> keep = useful(model, sequence);
  ChainSequence result;
  for (std::size_t t = 0; t < sequence.size(); ++t) {
    if (keep[t]) result.push_back(sequence[t]);
  }
  return result;
}

}  // namespace plimsoll
