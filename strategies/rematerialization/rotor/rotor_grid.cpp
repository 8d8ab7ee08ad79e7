#include "strategies/rematerialization/rotor/rotor_grid.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "sim/core/expects.h"
#include "sim/core/tolerance.h"
#include "strategies/rematerialization/rotor/table_parts.h"

namespace plimsoll {

namespace {

PLIMSOLL_VECTOR_CLONES
void relax_dense(float* __restrict__ best, const float* __restrict__ late, const float* __restrict__ early,
                 float nograd, std::int64_t count) {
  for (std::int64_t k = 0; k < count; ++k) {
    const float time = nograd + late[k] + early[k];
    best[k] = time < best[k] ? time : best[k];
  }
}

PLIMSOLL_VECTOR_CLONES
void relax_dense(float* __restrict__ best, const float* __restrict__ part, float nograd, std::int64_t count) {
  for (std::int64_t k = 0; k < count; ++k) {
    const float time = nograd + part[k];
    best[k] = time < best[k] ? time : best[k];
  }
}

PLIMSOLL_VECTOR_CLONES
void relax_dense(float* best, float nograd, std::int64_t count) {
  for (std::int64_t k = 0; k < count; ++k) best[k] = nograd < best[k] ? nograd : best[k];
}

void relax(float* best, const float* late, std::int64_t late_step, const float* early, std::int64_t early_step,
           float nograd, std::int64_t count) {
  if (late_step == 1 && early_step == 1) return relax_dense(best, late, early, nograd, count);
  for (std::int64_t k = 0; k < count; ++k) {
    const float time = nograd + late[k * late_step] + early[k * early_step];
    best[k] = time < best[k] ? time : best[k];
  }
}

void relax(float* best, const float* part, std::int64_t step, float nograd, std::int64_t count) {
  if (step == 1) return relax_dense(best, part, nograd, count);
  for (std::int64_t k = 0; k < count; ++k) {
    const float time = nograd + part[k * step];
    best[k] = time < best[k] ? time : best[k];
  }
}

std::int64_t step_of(std::int32_t coarse, std::int32_t fine) {
  return std::int64_t{1} << (coarse - fine);
}

}  // namespace

GridPoints GridPoints::affordable(std::size_t stages) {
  constexpr std::size_t most = std::size_t{1} << 26;
  const std::size_t pairs = std::max<std::size_t>(1, stages * (stages + 1) / 2);
  const auto points = [](std::size_t count, std::int64_t limit) {
    return std::clamp<std::int64_t>(static_cast<std::int64_t>(std::bit_floor(count)), 16, limit);
  };
  return {.inner = points(most / pairs, 512), .last = points(most / 4 / std::max<std::size_t>(1, stages), 16384)};
}

RotorGrid::RotorGrid(ChainModel model, GridRounding rounding, GridPoints points, Seconds longest_recompute)
    : model_{std::move(model)},
      conditions_{model_},
      rounding_{rounding},
      points_{points},
      base_{model_.resident + model_.x[0]},
      range_{(evaluate(model_, store_all_sequence(model_.stages())).peak - base_).count} {
  EXPECTS(points.inner > 0 && points.last > 0);
  std::int64_t phase = 0;
  for (std::size_t i = 0; i < model_.stages(); ++i) {
    const std::int64_t next = phase - conditions_.kept(i).count;
    phases_[at(Entry::saved)].push_back(phase);
    phases_[at(Entry::checkpoint)].push_back(next + conditions_.kept(i, Entry::checkpoint).count);
    phase = next;
  }
  build(longest_recompute);
}

void RotorGrid::build(Seconds longest_recompute) {
  const std::size_t n = model_.stages();
  for (Rows& rows : rows_) {
    rows.late.resize(n * (n + 1) / 2);
    rows.early.resize(n * (n + 1) / 2);
  }
  const auto most = static_cast<std::size_t>(std::max(points_.inner, points_.last) + 2);
  Scratch scratch{std::vector<float>(most), std::vector<std::int64_t>(n)};
  // A sub-chain that does not end the chain is run after its forwards have run before.
  std::vector<double> nograd_before{0};
  for (const Seconds s : model_.nograd) nograd_before.push_back(nograd_before.back() + s.value);
  const auto is_left_out = [&](std::size_t i, std::size_t l) {
    return l + 1 < n && nograd_before[l + 1] - nograd_before[i] > longest_recompute.value * (1 + model_tolerance);
  };
  Row none;
  none.need = none.enough = range_ + 1;
  for (std::size_t first = 0; first < n; first += last_stages_at_once) {
    const std::size_t end = std::min(n, first + last_stages_at_once);
    for (std::size_t i = end; i-- > 0;) {
      for (std::size_t l = std::max(first, i); l < end; ++l) {
        const bool left_out = is_left_out(i, l);
        const Row saved = left_out ? none : best_row(i, l, Entry::saved, scratch);
        const Row checkpoint =
            !left_out && conditions_.entries_differ(i) ? best_row(i, l, Entry::checkpoint, scratch) : saved;
        rows_[at(Entry::saved)].late[late_at(i, l)] = rows_[at(Entry::saved)].early[early_at(i, l)] = saved;
        rows_[at(Entry::checkpoint)].late[late_at(i, l)] = rows_[at(Entry::checkpoint)].early[early_at(i, l)] =
            checkpoint;
      }
    }
  }
  whole_ = row(0, n - 1, Entry::saved);
}

RotorGrid::Row RotorGrid::best_row(std::size_t i, std::size_t l, Entry entry, Scratch& scratch) {
  Row row;
  const std::size_t end = find_needs(i, l, entry, row, scratch);
  place(i, l, entry, row);
  float* const best = scratch.best.data();
  std::fill_n(best, row.count, infinite_float);
  if (i < l) relax_saving(i, l, entry, row, best);
  // Times fall with memory, and what precedes the two parts of a split grows with j: from `high` on no split is better.
  std::int64_t high = row.count;
  float nograd = 0;
  for (std::size_t j = i + 1; j < end; ++j) {
    nograd += static_cast<float>(model_.nograd[j - 1].value);
    while (high > 0 && best[high - 1] <= nograd) --high;
    if (high == 0) break;
    const std::int64_t low = std::max<std::int64_t>(0, row.at_or_above(scratch.low[j]));
    if (low >= high) continue;
    const Split split{&this->row(j, l, Entry::checkpoint), &early(i, j - 1, entry), model_.x[j].count, nograd};
    if (split.early->shift <= row.shift) {
      relax(row, split, low, high, best);
    } else {
      relax_coarser(row, split, low, high, best);
    }
  }
  store(row, best);
  return row;
}

// The least memory, that in which nothing is repeated, and the end of the splits worth a look.
std::size_t RotorGrid::find_needs(std::size_t i, std::size_t l, Entry entry, Row& row, Scratch& scratch) const {
  row.need = row.enough = conditions_.all(i, l, entry).count;
  if (i == l) return i;
  const std::int64_t kept = conditions_.kept(i, entry).count, held = conditions_.held(l).count;
  const Row& after = this->row(i + 1, l, Entry::saved);
  row.enough = std::max(row.enough, kept + after.enough);
  row.need = std::max(row.need, kept + after.need);
  std::int64_t run = 0;
  std::size_t j = i + 1;
  for (; j <= l && conditions_.recomputable(j - 1); ++j) {
    run = std::max(run, conditions_.null_step(i, j - 1).count);
    if (held + run > range_) break;
    scratch.low[j] = std::max(
        {held + run, model_.x[j].count + this->row(j, l, Entry::checkpoint).need, early(i, j - 1, entry).need});
    row.need = std::min(row.need, scratch.low[j]);
  }
  return j;
}

// The grid: no finer than those of the sub-chain's parts, but for those that end the chain.
void RotorGrid::place(std::size_t i, std::size_t l, Entry entry, Row& row) const {
  const bool last = l + 1 == model_.stages();
  const std::int64_t top = std::min(row.enough, range_ + 1), points = last ? points_.last : points_.inner;
  if (i < l) {
    row.shift = std::max(this->row(i + 1, l, Entry::saved).shift, this->row(i + 1, l, Entry::checkpoint).shift);
    if (!last) row.shift = std::max(row.shift, early(i, l - 1, entry).shift);
  }
  while ((top - row.need) >> row.shift >= points) ++row.shift;
  const std::int64_t mask = (std::int64_t{1} << row.shift) - 1;
  row.first = row.need + ((phases_[at(entry)][i] - row.need) & mask);
  row.count = static_cast<std::int32_t>(std::max<std::int64_t>(0, row.at_or_above(top)));
}

void RotorGrid::relax_saving(std::size_t i, std::size_t l, Entry entry, const Row& row, float* best) const {
  const Row& after = this->row(i + 1, l, Entry::saved);
  const std::int64_t kept = conditions_.kept(i, entry).count, count = row.count;
  const auto from = [&](std::int64_t bytes) { return std::clamp<std::int64_t>(row.at_or_above(bytes), 0, count); };
  const std::int64_t low = from(std::max(conditions_.all(i, l, entry).count, kept + after.need));
  const std::int64_t zero = std::max(low, from(kept + after.enough));
  const std::int64_t step = step_of(row.shift, after.shift);
  const float* const values = after.values + ((row.point(low) - kept - after.first) >> after.shift);
  for (std::int64_t k = low; k < zero; ++k) best[k] = values[(k - low) * step];
  std::fill(best + zero, best + count, 0.0F);
}

// The point of a row that stands for these bytes.
std::int64_t RotorGrid::rounded(const Row& row, std::int64_t bytes) const {
  if (rounding_ == GridRounding::down) return row.at_or_above(bytes);
  return (bytes - row.first + ((std::int64_t{1} << row.shift) >> 1)) >> row.shift;
}

void RotorGrid::relax(const Row& row, const Split& split, std::int64_t low, std::int64_t high, float* best) const {
  const Row *const late = split.late, *const early = split.early;
  const std::int64_t x = split.x;
  const float nograd = split.nograd;
  const std::int64_t late_end = std::clamp(row.at_or_above(x + late->enough), low, high);
  const std::int64_t early_end = std::clamp(row.at_or_above(early->enough), low, high);
  const std::int64_t both = std::min(late_end, early_end), either = std::max(late_end, early_end);
  const std::int64_t late_step = step_of(row.shift, late->shift), early_step = step_of(row.shift, early->shift);
  const auto late_at = [&](std::int64_t k) { return late->values + rounded(*late, row.point(k) - x); };
  const auto early_at = [&](std::int64_t k) { return early->values + early->at_or_above(row.point(k)); };
  if (low < both) plimsoll::relax(best + low, late_at(low), late_step, early_at(low), early_step, nograd, both - low);
  if (both < late_end) plimsoll::relax(best + both, late_at(both), late_step, nograd, late_end - both);
  if (both < early_end) plimsoll::relax(best + both, early_at(both), early_step, nograd, early_end - both);
  if (either < high) relax_dense(best + either, nograd, high - either);
}

// The same where several points of the row share one of the early part's.
void RotorGrid::relax_coarser(const Row& row, const Split& split, std::int64_t low, std::int64_t high,
                              float* best) const {
  const Row *const late = split.late, *const early = split.early;
  const std::int64_t x = split.x;
  const float nograd = split.nograd;
  const std::int64_t late_end = std::clamp(row.at_or_above(x + late->enough), low, high);
  const std::int64_t early_end = std::clamp(row.at_or_above(early->enough), low, high);
  const std::int64_t late_step = step_of(row.shift, late->shift);
  const auto relax_all = [&](std::int64_t first, std::int64_t end, float before) {
    const std::int64_t middle = std::clamp(late_end, first, end);
    if (first < middle) {
      const float* const values = late->values + rounded(*late, row.point(first) - x);
      plimsoll::relax(best + first, values, late_step, before, middle - first);
    }
    if (middle < end) relax_dense(best + middle, before, end - middle);
  };
  const std::int64_t half = rounding_ == GridRounding::nearest ? (std::int64_t{1} << early->shift) >> 1 : 0;
  for (std::int64_t first = low; first < early_end;) {
    const std::int64_t k = rounded(*early, row.point(first));
    // Bytes up to the point, or nearer to it than to the next, are the point's.
    const std::int64_t end =
        half > 0 ? row.at_or_above(early->point(k + 1) - half) : row.at_or_above(early->point(k) + 1);
    const std::int64_t next = std::clamp(end, first + 1, early_end);
    relax_all(first, next, nograd + early->values[k]);
    first = next;
  }
  if (early_end < high) relax_all(early_end, high, nograd);
}

void RotorGrid::store(Row& row, const float* best) {
  const auto count = static_cast<std::size_t>(row.count) + 3;
  if (count > left_) {
    left_ = std::max(cells_a_block, count);
    blocks_.push_back(std::make_unique_for_overwrite<float[]>(left_));
    next_ = blocks_.back().get();
  }
  next_[0] = row.count > 0 ? best[0] : 0;
  std::copy(best, best + row.count, next_ + 1);
  next_[count - 2] = next_[count - 1] = 0;
  row.values = next_ + 1;
  next_ += count;
  left_ -= count;
}

void RotorGrid::drop_parts() {
  std::vector<std::unique_ptr<float[]>> parts = std::move(blocks_);
  blocks_.clear();
  left_ = 0;
  const Row row = whole_;
  store(whole_, row.values);
  for (Rows& rows : rows_) rows = {};
}

// Between points, an estimate is drawn as a line.
float RotorGrid::time(const Row& row, std::int64_t bytes) const {
  if (bytes < row.need) return infinite_float;
  if (bytes >= row.enough) return 0;
  if (rounding_ == GridRounding::down) return row.values[row.at_or_above(bytes)];
  const std::int64_t k = (bytes - row.first) >> row.shift;
  const auto part = static_cast<float>(bytes - row.point(k)) / static_cast<float>(std::int64_t{1} << row.shift);
  return row.values[k] + part * (row.values[k + 1] - row.values[k]);
}

// A time is a sum of at most 4 n single-precision terms, each sum rounded.
double RotorGrid::rounding_error() const {
  return 4 * static_cast<double>(model_.stages()) * std::numeric_limits<float>::epsilon();
}

std::optional<Seconds> RotorGrid::seconds(float time) const {
  if (time == infinite_float) return std::nullopt;
  return Seconds{static_cast<double>(time) * (rounding_ == GridRounding::down ? 1 - rounding_error() : 1)};
}

float RotorGrid::rounded_up(Seconds time) const {
  return static_cast<float>(time.value * (1 + 2 * rounding_error()));
}

std::optional<Seconds> RotorGrid::recompute(Bytes budget) const {
  return seconds(time(whole_, (budget - base_).count));
}

ChainSequence RotorGrid::follow(Bytes budget) const {
  EXPECTS(budget >= smallest_feasible());
  ChainSequence sequence;
  append(sequence, 0, model_.stages() - 1, Entry::saved, (budget - base_).count);
  return sequence;
}

// The choice of the least time that is feasible to the byte: i stands for saving at i, j for the split before j.
std::size_t RotorGrid::choice(std::size_t i, std::size_t l, Entry entry, std::int64_t bytes) const {
  if (bytes >= row(i, l, entry).enough) return i;
  std::optional<std::size_t> chosen;
  float best = infinite_float;
  const auto offer = [&](std::size_t j, float time) {
    if (chosen && time >= best) return;
    chosen = j;
    best = time;
  };
  const std::int64_t left = bytes - conditions_.kept(i, entry).count;
  const Row& after = row(i + 1, l, Entry::saved);
  if (bytes >= conditions_.all(i, l, entry).count && left >= after.need) offer(i, time(after, left));
  float nograd = 0;
  std::int64_t run = 0;
  for (std::size_t j = i + 1; j <= l && conditions_.recomputable(j - 1) && !(chosen && nograd >= best); ++j) {
    nograd += static_cast<float>(model_.nograd[j - 1].value);
    run = std::max(run, conditions_.null_step(i, j - 1).count);
    if (conditions_.held(l).count + run > bytes) break;
    const Row &late = row(j, l, Entry::checkpoint), &first = early(i, j - 1, entry);
    const std::int64_t beside = bytes - model_.x[j].count;
    if (beside >= late.need && bytes >= first.need) offer(j, nograd + time(late, beside) + time(first, bytes));
  }
  EXPECTS(chosen);
  return *chosen;
}

void RotorGrid::append(ChainSequence& sequence, std::size_t i, std::size_t l, Entry entry, std::int64_t bytes) const {
  using Kind = ChainStep::Kind;
  const std::size_t j = i == l ? i : choice(i, l, entry, bytes);
  if (j == i) {
    sequence.push_back({Kind::forward_saving, i});
    if (i < l) append(sequence, i + 1, l, Entry::saved, bytes - conditions_.kept(i, entry).count);
    sequence.push_back({Kind::backward, i});
    return;
  }
  for (std::size_t k = i; k < j; ++k) sequence.push_back({Kind::forward, k});
  append(sequence, j, l, Entry::checkpoint, bytes - model_.x[j].count);
  append(sequence, i, j - 1, entry, bytes);
}

}  // namespace plimsoll
