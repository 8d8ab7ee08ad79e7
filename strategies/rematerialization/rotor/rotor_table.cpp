#include "strategies/rematerialization/rotor/rotor_table.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "sim/core/expects.h"
#include "sim/core/tolerance.h"
#include "strategies/rematerialization/rotor/table_parts.h"

namespace plimsoll {
namespace {

std::int64_t slots_of(std::int64_t a, std::int64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

// Loops over memory run over whole vectors: rows are followed by this many zeros, their right continuation.
constexpr std::int32_t lanes = 8;

inline void relax(double* __restrict__ best, const double* __restrict__ a, const double* __restrict__ b, double nograd,
                  std::int32_t count) {
  for (std::int32_t m = 0; m < count; m += lanes) {
    for (std::int32_t k = m; k < m + lanes; ++k) {
      const double time = nograd + a[k] + b[k];
      best[k] = time < best[k] ? time : best[k];
    }
  }
}

inline void relax(double* __restrict__ best, const double* __restrict__ a, double nograd, std::int32_t count) {
  for (std::int32_t m = 0; m < count; m += lanes) {
    for (std::int32_t k = m; k < m + lanes; ++k) {
      const double time = nograd + a[k];
      best[k] = time < best[k] ? time : best[k];
    }
  }
}

inline void relax(double* best, double nograd, std::int32_t count) {
  for (std::int32_t m = 0; m < count; m += lanes) {
    for (std::int32_t k = m; k < m + lanes; ++k) best[k] = nograd < best[k] ? nograd : best[k];
  }
}

}  // namespace

struct RotorTable::Scratch {
  std::vector<double> best;  // by m
  std::vector<Slots> low;    // by j: the least m of split j
};

Bytes slot_for(const ChainModel& model, Bytes budget, std::int64_t slots) {
  EXPECTS(slots > 0);
  return Bytes{std::max((budget - model.resident).count / slots, common_divisor(model))};
}

RotorTable::RotorTable(ChainModel model, Bytes slot, Bytes most, Seconds longest_recompute)
    : model_{std::move(model)},
      conditions_{model_},
      store_all_peak_{evaluate(model_, store_all_sequence(model_.stages())).peak},
      base_{model_.resident + model_.x[0]},
      unit_{slot.count},
      longest_recompute_{longest_recompute.value * (1 + model_tolerance)} {
  EXPECTS(slot > Bytes{0});
  const std::int64_t range = std::max<std::int64_t>(0, (std::min(most, store_all_peak_) - base_).count);
  EXPECTS(range / unit_ < std::numeric_limits<Slots>::max() / 4);
  capacity_ = static_cast<Slots>(range / unit_);
  nograd_before_.push_back(0);
  for (const Seconds s : model_.nograd) {
    nograd_.push_back(s.value);
    nograd_before_.push_back(nograd_before_.back() + s.value);
  }
  std::ranges::transform(model_.x, std::back_inserter(x_), [&](Bytes bytes) { return slots_for(bytes); });
  for (const Entry entry : {Entry::saved, Entry::checkpoint}) {
    for (std::size_t i = 0; i < model_.stages(); ++i) {
      kept_[at(entry)].push_back(slots_for(conditions_.kept(i, entry)));
    }
  }
  build();
}

RotorTable::Slots RotorTable::slots_for(Bytes need) const {
  return static_cast<Slots>(std::min<std::int64_t>(slots_of(need.count, unit_), capacity_ + 1));
}

void RotorTable::build() {
  const std::size_t n = model_.stages();
  for (Rows& rows : rows_) {
    rows.late.resize(n * (n + 1) / 2);
    rows.early.resize(n * (n + 1) / 2);
  }
  Scratch scratch{std::vector<double>(static_cast<std::size_t>(capacity_ + 1 + lanes)), std::vector<Slots>(n)};
  for (std::size_t first = 0; first < n; first += last_stages_at_once) {
    const std::size_t end = std::min(n, first + last_stages_at_once);
    for (std::size_t i = end; i-- > 0;) {
      for (std::size_t l = std::max(first, i); l < end; ++l) {
        const Row saved = best_row(i, l, Entry::saved, scratch);
        set(i, l, Entry::saved, saved);
        set(i, l, Entry::checkpoint,
            conditions_.entries_differ(i) ? best_row(i, l, Entry::checkpoint, scratch) : saved);
      }
    }
  }
}

void RotorTable::set(std::size_t i, std::size_t l, Entry entry, Row row) {
  rows_[at(entry)].late[l * (l + 1) / 2 + i] = rows_[at(entry)].early[early_at(i, l)] = row;
}

// What sub-problem (i, l) may take: unless it ends the chain, its forwards have run before.
double RotorTable::limit(std::size_t i, std::size_t l) const {
  const double before = l + 1 == model_.stages() ? 0 : nograd_before_[l + 1] - nograd_before_[i];
  return longest_recompute_ - before;
}

RotorTable::Row RotorTable::best_row(std::size_t i, std::size_t l, Entry entry, Scratch& scratch) {
  const Slots none = capacity_ + 1;
  if (limit(i, l) < 0) return {nullptr, none, none};
  const Slots all = slots_for(conditions_.all(i, l, entry));
  if (i == l) return {nullptr, all, all};

  // Memory of every choice.
  const Slots kept = kept_[at(entry)][i];
  const Row& after = row(i + 1, l, Entry::saved);
  const Slots save_low = std::min(none, std::max(all, kept + after.need));
  const Slots save_enough = std::min(none, std::max(save_low, kept + after.enough));
  Slots need = save_low;
  std::size_t end = i + 1;  // splits are i + 1 .. end - 1
  Bytes run;
  Slots null = slots_for(conditions_.held(l));
  for (; end <= l && conditions_.recomputable(end - 1); ++end) {
    const Bytes step = conditions_.null_step(i, end - 1);
    if (step > run) {
      run = step;
      null = slots_for(conditions_.held(l) + run);
      if (null == none) break;
    }
    const Slots low =
        std::max({null, x_[end] + row(end, l, Entry::checkpoint).need, early_row(i, end - 1, entry).need});
    scratch.low[end] = low;
    need = std::min(need, low);
  }
  if (need == none) return {nullptr, none, none};

  double* const best = scratch.best.data();
  std::fill(best + need, best + save_low, infinite_double);
  if (save_low < save_enough) {
    const Slots varies = std::clamp(kept + after.need, save_low, save_enough);
    const double* from = after.values + (varies - kept - after.need);
    std::copy(from, from + (save_enough - varies), best + varies);
  }

  relax_splits(i, l, entry, end, need, save_enough, scratch);
  Slots enough = save_enough;
  while (need < enough && !(best[need] <= limit(i, l))) ++need;
  while (enough > need && best[enough - 1] <= 0) --enough;
  return {store(best + need, best + enough), need, enough};
}

PLIMSOLL_VECTOR_CLONES
void RotorTable::relax_splits(std::size_t i, std::size_t l, Entry entry, std::size_t end, Slots need, Slots high,
                              Scratch& scratch) const {
  // `best` falls with m, and what precedes the two parts of a split grows with j: from `high` on no split is better.
  double* const best = scratch.best.data();
  const double most = limit(i, l);
  double nograd = 0;
  for (std::size_t j = i + 1; j < end; ++j) {
    nograd += nograd_[j - 1];
    if (nograd > most) break;
    while (high > need && best[high - 1] <= nograd) --high;
    if (high == need) break;
    const Slots low = scratch.low[j];
    if (low >= high) continue;
    const Row& late = row(j, l, Entry::checkpoint);
    const Row& early = early_row(i, j - 1, entry);
    const Slots late_end = std::clamp(x_[j] + late.enough, low, high);
    const Slots early_end = std::clamp(early.enough, low, high);
    const Slots both = std::min(late_end, early_end), either = std::max(late_end, early_end);
    const auto late_at = [&](Slots m) { return late.values + (m - x_[j] - late.need); };
    const auto early_at = [&](Slots m) { return early.values + (m - early.need); };
    if (low < both) relax(best + low, late_at(low), early_at(low), nograd, both - low);
    if (both < either) relax(best + both, late_end > both ? late_at(both) : early_at(both), nograd, either - both);
    if (either < high) relax(best + either, nograd, high - either);
  }
}

const double* RotorTable::store(const double* first, const double* last) {
  if (first == last) return nullptr;
  const auto count = static_cast<std::size_t>(last - first + lanes);
  if (count > block_left_) {
    block_left_ = std::max(cells_a_block, count);
    blocks_.push_back(std::make_unique_for_overwrite<double[]>(block_left_));
  }
  double* const to = blocks_.back().get() + (std::max(cells_a_block, count) - block_left_);
  block_left_ -= count;
  std::fill_n(std::copy(first, last, to), lanes, 0.0);
  return to;
}

double RotorTable::time(std::size_t i, std::size_t l, Entry entry, Slots m) const {
  const Row& r = row(i, l, entry);
  if (m < r.need) return infinite_double;
  return m < r.enough ? r.values[m - r.need] : 0;
}

Bytes RotorTable::smallest_feasible() const {
  if (whole().need > capacity_) return store_all_peak_;
  return std::min(base_ + Bytes{whole().need * unit_}, store_all_peak_);
}

// The m that stands for what `budget` leaves for sub-problem (0, n - 1), if the table has an answer for it.
std::optional<RotorTable::Slots> RotorTable::slots_within(Bytes budget) const {
  if (budget < base_) return std::nullopt;
  const Slots m = static_cast<Slots>(std::min<std::int64_t>((budget - base_).count / unit_, capacity_));
  if (m < whole().need) return std::nullopt;
  return m;
}

std::optional<Seconds> RotorTable::recompute(Bytes budget) const {
  if (budget >= store_all_peak_) return Seconds{0};
  const std::optional<Slots> m = slots_within(budget);
  if (!m) return std::nullopt;
  return Seconds{time(0, model_.stages() - 1, Entry::saved, *m)};
}

std::optional<ChainSequence> RotorTable::solve(Bytes budget) const {
  if (budget >= store_all_peak_) return store_all_sequence(model_.stages());
  const std::optional<Slots> m = slots_within(budget);
  if (!m) return std::nullopt;
  ChainSequence sequence;
  append(sequence, 0, model_.stages() - 1, Entry::saved, *m);
  return sequence;
}

void RotorTable::append(ChainSequence& sequence, std::size_t i, std::size_t l, Entry entry, Slots m) const {
  using Kind = ChainStep::Kind;
  const std::size_t j = split(i, l, entry, m);
  if (j == i) {
    sequence.push_back({Kind::forward_saving, i});
    if (i < l) append(sequence, i + 1, l, Entry::saved, m - kept_[at(entry)][i]);
    sequence.push_back({Kind::backward, i});
    return;
  }
  for (std::size_t k = i; k < j; ++k) sequence.push_back({Kind::forward, k});
  append(sequence, j, l, Entry::checkpoint, m - x_[j]);
  append(sequence, i, j - 1, entry, m);
}

// The choice that made the table's value, found again: i where stage i saves, else j.
std::size_t RotorTable::split(std::size_t i, std::size_t l, Entry entry, Slots m) const {
  const double best = time(i, l, entry, m);
  EXPECTS(best < infinite_double);
  if (i == l) return i;
  const Slots all = slots_for(conditions_.all(i, l, entry)), kept = kept_[at(entry)][i];
  if (m >= all && time(i + 1, l, Entry::saved, m - kept) <= best) return i;
  double nograd = 0;
  Bytes run;
  for (std::size_t j = i + 1; j <= l && conditions_.recomputable(j - 1); ++j) {
    nograd += nograd_[j - 1];
    run = std::max(run, conditions_.null_step(i, j - 1));
    if (m < slots_for(conditions_.held(l) + run)) break;
    if (nograd + time(j, l, Entry::checkpoint, m - x_[j]) + time(i, j - 1, entry, m) <= best) return j;
  }
  EXPECTS(false);
}

RotorSlots::RotorSlots(const ChainModel& model, std::int64_t slots, std::span<const Bytes> budgets)
    : model_{model}, slots_{slots}, unrounded_{model, budgets, longest_exact_chain, few_points} {}

std::optional<ExactPlan> RotorSlots::solve(Bytes budget) const {
  std::optional<ExactPlan> plan = unrounded_.solve(budget);
  if (!plan || plan->gap() == 0) return plan;
  const Seconds recompute = plan->time - evaluate(model_, store_all_sequence(model_.stages())).time;
  const RotorTable table(model_, slot_for(model_, budget, slots_), budget, recompute);
  std::optional<ChainSequence> rounded = table.solve(budget);
  if (!rounded) return plan;
  const Seconds time = evaluate(model_, *rounded).time;
  if (time < plan->time) *plan = {*std::move(rounded), time, std::min(time, plan->lower_bound)};
  return plan;
}

std::vector<Bytes> RotorSlots::steps() const {
  // Every budget has a table of its own.
  constexpr std::size_t most = 200;
  const std::vector<Bytes> all = unrounded_.steps();
  if (model_.stages() <= longest_exact_chain || all.size() <= most) return all;
  std::vector<Bytes> some;
  for (std::size_t k = 0; k < most; ++k) some.push_back(all[k * (all.size() - 1) / (most - 1)]);
  return some;
}

}  // namespace plimsoll
