#include "strategies/rematerialization/rotor/rotor_floating.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "sim/core/expects.h"
#include "sim/io/input_error.h"
#include "strategies/api/front.h"
#include "strategies/api/strategy.h"
#include "strategies/list.h"
#include "strategies/models/best_of_sequences.h"
#include "strategies/rematerialization/rotor/table_parts.h"

namespace plimsoll {
namespace {

using Kind = ChainStep::Kind;

std::size_t index_of(std::size_t s, std::size_t t, std::size_t l) {
  return l * (l + 1) * (l + 2) / 6 + t * (t + 1) / 2 + s;
}

struct RotorFloatingOptions {
  std::int64_t slots = 100;
};

SequenceFamily floating_family(const PartTask& task, const RotorFloatingOptions& options) {
  const ChainPart part = chain_part(task.problem, task.part());
  const ChainModel model = chain_model(task.problem, part);
  if (model.stages() > longest_floating_chain) {
    throw InputError(
        fmt::format("strategy 'rotor_floating' takes chains of up to {} stages, and '{}' has {}; 'rotor' "
                    "takes any",
                    longest_floating_chain, task.problem.graph.name, model.stages()));
  }
  const auto floating = std::make_shared<const FloatingTable>(model, options.slots);
  return {.name = "rotor_floating",
          .count = floating->plans() + 1,
          .sequence = [floating, stages = model.stages()](std::size_t k) {
            return k == 0 ? store_all_sequence(stages) : floating->plan(k - 1);
          }};
}

// rotor's recursion is a part of this one, but this one rounds.
Options rotor_unrounded() {
  return Options(rotor_strategy.options);
}

constexpr auto rotor_floating_options = options_of<RotorFloatingOptions>(option_of<&RotorFloatingOptions::slots>({
    .name = "slots",
    .least = 1,
    .most = 2'000,
    .help = "resolution of memory: sizes are rounded up to 1/slots of the peak of store_all (unless their common "
            "divisor is that large)",
}));

std::vector<TapeOutcome> rotor_floating_tapes(const PartTask& task, const RotorFloatingOptions& options,
                                              std::span<const std::optional<Bytes>> budgets, const Tape*) {
  return faster_outcomes(best_of_sequences(task, floating_family(task, options), budgets),
                         rotor_strategy.tapes(task, rotor_unrounded(), budgets, nullptr));
}

std::vector<Bytes> rotor_floating_candidates(const PartTask& task, const RotorFloatingOptions& options) {
  std::vector<Bytes> budgets = budgets_of_sequences(task, floating_family(task, options));
  const std::vector<Bytes> more = rotor_strategy.candidates(task, rotor_unrounded());
  budgets.insert(budgets.end(), more.begin(), more.end());
  std::ranges::sort(budgets);
  return budgets;
}

}  // namespace

FloatingTable::FloatingTable(const ChainModel& model, std::int64_t slots)
    : model_{model}, conditions_{model_}, base_{model.resident + model.x[0]} {
  const std::size_t n = model_.stages();
  EXPECTS(slots > 0 && n <= longest_floating_chain);
  const std::int64_t range = (evaluate(model_, store_all_sequence(n)).peak - base_).count;
  unit_ = common_divisor(model_);
  if (range / unit_ > slots) unit_ = divide_up(range, slots);
  capacity_ = divide_up(range, unit_);
  for (const Bytes x : model_.x) x_.push_back(slots_for(x));
  for (std::size_t i = 0; i < n; ++i) kept_.push_back(slots_for(conditions_.kept(i)));
  times_.assign(index_of(0, 0, n) * static_cast<std::size_t>(capacity_ + 1), infinite_double);
  for (std::size_t l = 0; l < n; ++l) {
    for (std::size_t s = l + 1; s-- > 0;) {
      for (std::size_t t = s; t <= l; ++t) fill(s, t, l);
    }
  }
  double last = infinite_double;
  for (Slots m = 0; m <= capacity_; ++m) {
    if (time(0, 0, n - 1, m) >= last) continue;
    last = time(0, 0, n - 1, m);
    changes_.push_back(m);
  }
}

FloatingTable::Slots FloatingTable::slots_for(Bytes bytes) const {
  return std::min(divide_up(bytes.count, unit_), capacity_ + 1);
}

FloatingTable::Slots FloatingTable::moved(std::size_t s, Slots m) const {
  return std::min(m + x_[s] - x_[s + 1], capacity_);
}

const double* FloatingTable::row(std::size_t s, std::size_t t, std::size_t l) const {
  return times_.data() + index_of(s, t, l) * static_cast<std::size_t>(capacity_ + 1);
}

double FloatingTable::time(std::size_t s, std::size_t t, std::size_t l, Slots m) const {
  if (m < 0) return infinite_double;
  return row(s, t, l)[m];
}

void FloatingTable::fill(std::size_t s, std::size_t t, std::size_t l) {
  double* const best = times_.data() + index_of(s, t, l) * static_cast<std::size_t>(capacity_ + 1);
  if (s == t) {
    for (Slots m = slots_for(conditions_.all(s, l)); m <= capacity_; ++m) {
      best[m] = s == l ? 0 : time(s + 1, s + 1, l, m - kept_[s]);
    }
  } else if (conditions_.recomputable(s)) {
    for (Slots m = slots_for(conditions_.held(l) + conditions_.null_step(s, s)); m <= capacity_; ++m) {
      best[m] = model_.nograd[s].value + time(s + 1, t, l, moved(s, m));
    }
  }
  fill_splits(s, t, l, best);
}

void FloatingTable::fill_splits(std::size_t s, std::size_t t, std::size_t l, double* best) const {
  double nograd = 0;
  Bytes run;
  for (std::size_t j = s + 1; j <= l && conditions_.recomputable(j - 1); ++j) {
    nograd += model_.nograd[j - 1].value;
    run = std::max(run, conditions_.null_step(s, j - 1));
    const Slots low = std::max(slots_for(conditions_.held(l) + run), x_[j]);
    for (std::size_t u = std::max(j, t + 1); u <= l; ++u) {
      const double* const late = row(j, u, l);
      const double* const early = row(s, t, u - 1);
      for (Slots m = low; m <= capacity_; ++m) best[m] = std::min(best[m], nograd + late[m - x_[j]] + early[m]);
    }
  }
}

// The choice that made the table's value, found again.
void FloatingTable::append(ChainSequence& sequence, std::size_t s, std::size_t t, std::size_t l, Slots m) const {
  const double best = time(s, t, l, m);
  EXPECTS(best < infinite_double);
  if (s == t && m >= slots_for(conditions_.all(s, l)) && (s == l || time(s + 1, s + 1, l, m - kept_[s]) <= best)) {
    sequence.push_back({Kind::forward_saving, s});
    if (s < l) append(sequence, s + 1, s + 1, l, m - kept_[s]);
    sequence.push_back({Kind::backward, s});
    return;
  }
  const bool may_move =
      s < t && conditions_.recomputable(s) && m >= slots_for(conditions_.held(l) + conditions_.null_step(s, s));
  if (may_move && model_.nograd[s].value + time(s + 1, t, l, moved(s, m)) <= best) {
    sequence.push_back({Kind::forward, s});
    append(sequence, s + 1, t, l, moved(s, m));
    return;
  }
  EXPECTS(append_split(sequence, s, t, l, m));
}

bool FloatingTable::append_split(ChainSequence& sequence, std::size_t s, std::size_t t, std::size_t l, Slots m) const {
  const double best = time(s, t, l, m);
  double nograd = 0;
  Bytes run;
  for (std::size_t j = s + 1; j <= l && conditions_.recomputable(j - 1); ++j) {
    nograd += model_.nograd[j - 1].value;
    run = std::max(run, conditions_.null_step(s, j - 1));
    if (m < slots_for(conditions_.held(l) + run)) return false;
    for (std::size_t u = std::max(j, t + 1); u <= l; ++u) {
      if (nograd + time(j, u, l, m - x_[j]) + time(s, t, u - 1, m) > best) continue;
      for (std::size_t k = s; k < j; ++k) sequence.push_back({Kind::forward, k});
      append(sequence, j, u, l, m - x_[j]);
      append(sequence, s, t, u - 1, m);
      return true;
    }
  }
  return false;
}

std::optional<Seconds> FloatingTable::recompute(Bytes budget) const {
  const std::int64_t memory = (budget - base_).count;
  const double least = time(0, 0, model_.stages() - 1, memory < 0 ? -1 : std::min(memory / unit_, capacity_));
  return least < infinite_double ? std::optional(Seconds{least}) : std::nullopt;
}

ChainSequence FloatingTable::plan(std::size_t k) const {
  EXPECTS(k < plans());
  ChainSequence sequence;
  append(sequence, 0, 0, model_.stages() - 1, changes_[k]);
  return sequence;
}

// The strategy `rotor_floating`: weakly persistent checkpointing of a short chain as a tape.
extern constinit const StrategyInfo rotor_floating_strategy{
    .name = "rotor_floating",
    .family = Family::rematerialization,
    .summary = "rotor with checkpoints that may move forward (weak persistence), for chains of up to 40 stages",
    .source =
        "Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova, 'Optimal re-materialization strategies for "
        "heterogeneous chains', ACM Transactions on Mathematical Software 50(2), 2024",
    .chains_only = true,
    .options = rotor_floating_options,
    .kind =
        TapeStrategy{
            .tapes = by_options<rotor_floating_tapes>,
            .candidates = by_options<rotor_floating_candidates>,
            .plans_parts = true,
        },
    .effort = {.stages = 25},
};

}  // namespace plimsoll
