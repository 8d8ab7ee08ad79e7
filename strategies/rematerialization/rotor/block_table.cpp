#include "strategies/rematerialization/rotor/block_table.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "sim/core/expects.h"
#include "strategies/rematerialization/rotor/table_parts.h"

namespace plimsoll {
namespace {

constexpr std::int64_t most_entries = std::int64_t{1} << 25;

std::int64_t common_divisor(const std::vector<Block>& blocks) {
  std::int64_t divisor = 0;
  const auto divide = [&divisor](Bytes bytes) { divisor = std::gcd(divisor, bytes.count); };
  for (const Block& block : blocks) {
    for (const Bytes bytes : {block.x, block.held, block.first_forward, block.later_forwards}) divide(bytes);
    for (const Bytes bytes : block.shared) divide(bytes);
    for (const BlockOption& option : block.options) {
      for (const Bytes bytes : {option.kept, option.forward, option.backward}) divide(bytes);
    }
  }
  return std::max<std::int64_t>(divisor, 1);
}

PLIMSOLL_VECTOR_CLONES
void relax(double* __restrict__ best, const double* __restrict__ late, const double* __restrict__ early, double nograd,
           std::int64_t count) {
  for (std::int64_t m = 0; m < count; ++m) {
    const double time = nograd + late[m] + early[m];
    best[m] = time < best[m] ? time : best[m];
  }
}

}  // namespace

BlockTable::BlockTable(std::vector<Block> blocks, OptionUse use, Bytes most, std::int64_t slots)
    : blocks_{std::move(blocks)}, use_{use} {
  EXPECTS(!blocks_.empty() && slots > 0);
  const std::size_t n = blocks_.size();
  const auto pairs = static_cast<std::int64_t>(n * (n + 1) / 2);
  const std::int64_t affordable = std::clamp<std::int64_t>(most_entries / pairs, 1, slots);
  unit_ = common_divisor(blocks_);
  if (most.count / unit_ > affordable) unit_ = divide_up(most.count, affordable);
  capacity_ = divide_up(most.count, unit_);
  width_ = static_cast<std::size_t>(capacity_ + 1);
  times_.assign(static_cast<std::size_t>(pairs) * width_, infinite_double);
  least_.resize(static_cast<std::size_t>(pairs));
  for (std::size_t l = 0; l < n; ++l) {
    for (std::size_t i = l + 1; i-- > 0;) {
      fill(i, l);
      fill_least(i, l);
    }
  }
  double last = infinite_double;
  for (Slots m = 0; m <= capacity_; ++m) {
    if (time(0, n - 1, m) >= last) continue;
    last = time(0, n - 1, m);
    changes_.push_back(m);
  }
}

Bytes BlockTable::need(const BlockOption& option, std::size_t l) const {
  return std::max(blocks_[l].held + option.forward, option.backward);
}

Bytes BlockTable::x_beside(std::size_t i, std::size_t j) const {
  const Block& block = blocks_[j];
  return block.shared.empty() ? block.x : block.x - block.shared[i];
}

Bytes BlockTable::step_need(std::size_t i, std::size_t k) const {
  return std::max((k > i ? x_beside(i, k) : Bytes{0}) + blocks_[k].first_forward, blocks_[k].later_forwards);
}

BlockTable::Slots BlockTable::slots_for(Bytes bytes) const {
  return std::min(divide_up(bytes.count, unit_), capacity_ + 1);
}

double BlockTable::time(std::size_t i, std::size_t l, Slots m) const {
  if (m < 0) return infinite_double;
  return row(i, l)[m];
}

void BlockTable::fill(std::size_t i, std::size_t l) {
  double* const best = times_.data() + at(i, l) * width_;
  for (std::size_t k = 0; uses_options(i, l) && k < blocks_[i].options.size(); ++k) {
    const BlockOption& option = blocks_[i].options[k];
    const double extra = option.extra.value;
    const Slots kept = slots_for(option.kept), low = std::max(slots_for(need(option, l)), i < l ? kept : 0);
    const double* const after = i < l ? row(i + 1, l) : nullptr;
    for (Slots m = low; m <= capacity_; ++m)
      best[m] = std::min(best[m], extra + (after != nullptr ? after[m - kept] : 0));
  }
  // `best` falls with m, and what precedes the two parts of a split grows with j: from `high` on no split is better.
  Slots high = capacity_ + 1, forwards = slots_for(blocks_[l].held);
  double nograd = 0;
  Bytes run;
  for (std::size_t j = i + 1; j <= l && blocks_[j - 1].recomputable; ++j) {
    nograd += blocks_[j - 1].nograd.value;
    if (const Bytes need = step_need(i, j - 1); need > run) {
      run = need;
      forwards = slots_for(blocks_[l].held + run);
    }
    while (high > 0 && best[high - 1] <= nograd) --high;
    if (forwards >= high) break;
    const Slots x = slots_for(x_beside(i, j)), low = std::max(forwards, x);
    if (low < high) relax(best + low, row(j, l) + (low - x), row(i, j - 1) + low, nograd, high - low);
  }
}

void BlockTable::fill_least(std::size_t i, std::size_t l) {
  Least& best = least_[at(i, l)];
  best.need = Bytes{std::numeric_limits<std::int64_t>::max() / 4};  // none: can be added to without overflow
  const auto offer = [&best](Bytes bytes, Choice choice) {
    if (bytes < best.need) best = {bytes, choice};
  };
  for (std::size_t k = 0; uses_options(i, l) && k < blocks_[i].options.size(); ++k) {
    const BlockOption& option = blocks_[i].options[k];
    offer(std::max(need(option, l), i < l ? option.kept + least_[at(i + 1, l)].need : Bytes{0}), {false, k});
  }
  Bytes run;
  for (std::size_t j = i + 1; j <= l && blocks_[j - 1].recomputable; ++j) {
    run = std::max(run, step_need(i, j - 1));
    offer(std::max({blocks_[l].held + run, x_beside(i, j) + least_[at(j, l)].need, least_[at(i, j - 1)].need}),
          {true, j});
  }
}

// The choice that made the table's value, found again.
BlockTable::Choice BlockTable::choice(std::size_t i, std::size_t l, Slots m) const {
  const double best = time(i, l, m);
  EXPECTS(best < infinite_double);
  for (std::size_t k = 0; uses_options(i, l) && k < blocks_[i].options.size(); ++k) {
    const BlockOption& option = blocks_[i].options[k];
    if (m < slots_for(need(option, l))) continue;
    if (option.extra.value + (i < l ? time(i + 1, l, m - slots_for(option.kept)) : 0) <= best) return {false, k};
  }
  double nograd = 0;
  for (std::size_t j = i + 1; j <= l && blocks_[j - 1].recomputable; ++j) {
    nograd += blocks_[j - 1].nograd.value;
    if (m < slots_for(blocks_[l].held + step_need(i, j - 1))) break;
    if (nograd + time(j, l, m - slots_for(x_beside(i, j))) + time(i, j - 1, m) <= best) return {true, j};
  }
  EXPECTS(false);
}

// Without m: the steps of the least memory.
void BlockTable::append(std::vector<BlockStep>& steps, std::size_t i, std::size_t l, std::optional<Slots> m) const {
  using Kind = BlockStep::Kind;
  const auto less = [&m](Slots taken) { return m ? std::optional(*m - taken) : std::nullopt; };
  while (true) {
    const auto [splits, k] = m ? choice(i, l, *m) : least_[at(i, l)].choice;
    if (!splits) {
      steps.push_back({Kind::forward_option, i, k});
      if (i < l) append(steps, i + 1, l, less(slots_for(blocks_[i].options[k].kept)));
      steps.push_back({Kind::backward_option, i, k});
      return;
    }
    for (std::size_t b = i; b < k; ++b) steps.push_back({Kind::forward_nothing, b, 0});
    append(steps, k, l, less(slots_for(x_beside(i, k))));
    l = k - 1;
  }
}

std::vector<BlockStep> BlockTable::plan(std::size_t k) const {
  EXPECTS(k < plans());
  std::vector<BlockStep> steps;
  append(steps, 0, blocks_.size() - 1, k == 0 ? std::nullopt : std::optional(changes_[k - 1]));
  return steps;
}

std::optional<Seconds> BlockTable::extra(Bytes memory) const {
  const Slots m = std::min(memory.count < 0 ? -1 : memory.count / unit_, capacity_);
  const double least = time(0, blocks_.size() - 1, m);
  return least < infinite_double ? std::optional(Seconds{least}) : std::nullopt;
}

}  // namespace plimsoll
