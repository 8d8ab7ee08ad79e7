#include "strategies/offloading/pofo/pofo_blocks.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "sim/core/expects.h"

namespace plimsoll {
namespace {

constexpr double infinite_block = std::numeric_limits<double>::infinity();
constexpr double tolerance = 1e-9;  // of a slot

double as_double(Bytes bytes) {
  return static_cast<double>(bytes.count);
}

}  // namespace

PofoBlocks::PofoBlocks(ChainModel model, double bytes_per_second, Bytes slot, std::int32_t slots, SlotRounding rounding)
    : model_{std::move(model)},
      conditions_{model_},
      bandwidth_{bytes_per_second},
      slot_{as_double(slot)},
      slots_{slots},
      rounding_{rounding} {
  EXPECTS(slot > Bytes{0} && slots > 0);
  const auto rounded = [&](Bytes bytes) {
    const double exact = as_double(bytes) / slot_;
    return static_cast<std::int32_t>(
        std::min<double>(rounding == SlotRounding::up ? std::ceil(exact) : std::floor(exact), slots_ + 1));
  };
  const std::size_t n = model_.stages();
  nograd_before_.push_back(0);
  work_before_.push_back(0);
  for (std::size_t i = 0; i < n; ++i) {
    x_.push_back(rounded(model_.x[i]));
    kept_.push_back(rounded(conditions_.kept(i)));
    nograd_before_.push_back(nograd_before_.back() + model_.nograd[i].value);
    work_before_.push_back(work_before_.back() + model_.forward[i].value + model_.backward[i].value);
    std::vector<double>& run = run_.emplace_back(1, 0.0);
    for (std::size_t k = i; k < n; ++k) {
      run.push_back(conditions_.recomputable(k) ? std::max(run.back(), as_double(conditions_.null_step(i, k)))
                                                : infinite_block);
    }
  }
  times_.resize(n * (n + 1) / 2);
  for (std::size_t l = 0; l < n; ++l) {
    for (std::size_t i = l + 1; i-- > 0;) {
      std::vector<float>& times = times_[l * (l + 1) / 2 + i];
      times.reserve(static_cast<std::size_t>(slots_ + 1) * static_cast<std::size_t>(slots_ + 2) / 2);
      for (std::int32_t m = 0; m <= slots_; ++m) {
        for (std::int32_t d = 0; d <= m; ++d) times.push_back(static_cast<float>(best(i, l, {m, d}).seconds));
      }
    }
  }
}

/// Slots that must be there so many seconds before `bytes` are.
std::int32_t PofoBlocks::returning_before(double bytes, double seconds) const {
  const double left = (bytes - bandwidth_ * seconds) / slot_;
  if (left <= 0) return 0;
  return static_cast<std::int32_t>(rounding_ == SlotRounding::up ? std::ceil(left - tolerance)
                                                                 : std::floor(left + tolerance));
}

double PofoBlocks::idle(double bytes) const {
  return bytes > 0 ? bytes / bandwidth_ : 0;
}

double PofoBlocks::at(std::size_t i, std::size_t l, Cell c) const {
  if (c.memory < c.returning) return infinite_block;
  return times_[l * (l + 1) / 2 + i][static_cast<std::size_t>(c.memory) * static_cast<std::size_t>(c.memory + 1) / 2 +
                                     static_cast<std::size_t>(c.returning)];
}

/// What the stages behind i have once B_i and what it idles are over, in reverse.
PofoBlocks::Cell PofoBlocks::inside_save(std::size_t i, Cell c) const {
  const double wait = as_double(conditions_.backward(i)) + bytes(c.returning) - bytes(c.memory);
  return {c.memory - kept_[i], returning_before(bytes(c.returning), model_.backward[i].value + idle(wait))};
}

double PofoBlocks::save(std::size_t i, std::size_t l, Cell c) const {
  const double memory = bytes(c.memory), backward = as_double(conditions_.backward(i));
  const double forward = as_double(conditions_.held(l) + conditions_.forward(i));
  if (backward > memory || forward > memory) return infinite_block;
  double seconds = model_.backward[i].value + idle(backward + bytes(c.returning) - memory);
  if (i < l) {
    const Cell inside = inside_save(i, c);
    if (inside.memory < 0) return infinite_block;
    seconds += at(i + 1, l, inside);
  }
  const double there = std::max(0.0, bytes(c.returning) - bandwidth_ * seconds);
  return seconds + idle(forward + there - memory) + model_.forward[i].value;
}

PofoBlocks::Cell PofoBlocks::late_part(std::size_t i, std::size_t j, Cell c) const {
  return {c.memory - x_[j], returning_before(bytes(c.returning), at(i, j - 1, c))};
}

double PofoBlocks::split(std::size_t i, std::size_t j, std::size_t l, Cell c) const {
  const double memory = bytes(c.memory), need = as_double(conditions_.held(l)) + run_[i][j - i];
  const double early = at(i, j - 1, c);
  if (need > memory || early == infinite_block) return infinite_block;
  const Cell late = late_part(i, j, c);
  if (late.memory < 0) return infinite_block;
  const double seconds = early + at(j, l, late);
  const double there = std::max(0.0, bytes(c.returning) - bandwidth_ * seconds);
  return seconds + idle(need + there - memory) + nograd_before_[j] - nograd_before_[i];
}

PofoBlocks::Choice PofoBlocks::best(std::size_t i, std::size_t l, Cell c) const {
  Choice best{save(i, l, c), i};
  const double work = work_before_[l + 1] - work_before_[i];
  for (std::size_t j = i + 1; j <= l && work + nograd_before_[j] - nograd_before_[i] < best.seconds; ++j) {
    const double seconds = split(i, j, l, c);
    if (seconds < best.seconds) best = {seconds, j};
  }
  return best;
}

PofoBlocks::Cell PofoBlocks::cell(double memory, double returning) const {
  const bool up = rounding_ == SlotRounding::up;
  const double m = memory / slot_, d = returning / slot_;
  const auto within = [&](double slots) {
    return static_cast<std::int32_t>(std::clamp(slots, -1.0, static_cast<double>(slots_)));
  };
  return {within(up ? std::floor(m + tolerance) : std::ceil(m - tolerance)),
          within(up ? std::ceil(d - tolerance) : std::floor(d + tolerance))};
}

double PofoBlocks::time(std::size_t i, std::size_t l, double memory, double returning) const {
  const Cell c = cell(memory, returning);
  return c.memory < 0 ? infinite_block : at(i, l, c);
}

void PofoBlocks::append(ChainSequence& sequence, std::size_t i, std::size_t l, double memory, double returning) const {
  append(sequence, i, l, cell(memory, returning));
}

void PofoBlocks::append(ChainSequence& sequence, std::size_t i, std::size_t l, Cell c) const {
  const auto [seconds, j] = best(i, l, c);
  EXPECTS(seconds < infinite_block);
  if (j == i) {
    sequence.push_back({ChainStep::Kind::forward_saving, i});
    if (i < l) append(sequence, i + 1, l, inside_save(i, c));
    sequence.push_back({ChainStep::Kind::backward, i});
    return;
  }
  for (std::size_t k = i; k < j; ++k) sequence.push_back({ChainStep::Kind::forward, k});
  append(sequence, j, l, late_part(i, j, c));
  append(sequence, i, j - 1, c);
}

}  // namespace plimsoll
