#include "strategies/placement/lists/idle_gaps.h"

#include <algorithm>

#include "sim/core/expects.h"

namespace plimsoll {
namespace {

constexpr std::size_t most_gaps_of_block = 64;

}  // namespace

IdleGaps::IdleGaps() : blocks_{{{0, cannot_run}}}, begins_{0}, longest_{cannot_run} {}

std::size_t IdleGaps::block_at(Nanoseconds time) const {
  const auto after = std::ranges::upper_bound(begins_, time);
  return after == begins_.begin() ? 0 : static_cast<std::size_t>(after - begins_.begin()) - 1;
}

Nanoseconds IdleGaps::earliest(Nanoseconds ready, Nanoseconds time) const {
  for (std::size_t b = block_at(ready); b < blocks_.size(); ++b) {
    if (longest_[b] < time) continue;
    for (const Gap& gap : blocks_[b]) {
      const Nanoseconds start = std::max(gap.begin, ready);
      if (start < gap.end && gap.end - start >= time) return start;
    }
  }
  EXPECTS(false);  // the last gap has no end
  return 0;
}

void IdleGaps::take(Nanoseconds start, Nanoseconds time) {
  const std::size_t b = block_at(start);
  Block& gaps = blocks_[b];
  const auto after = std::ranges::upper_bound(gaps, start, {}, &Gap::begin);
  EXPECTS(after != gaps.begin());
  const auto at = after - 1;
  const Gap gap = *at;
  EXPECTS(start < gap.end && gap.end - start >= time);
  const Gap left{gap.begin, start}, right{start + time, gap.end};
  const bool has_left = left.begin < left.end, has_right = right.begin < right.end;
  if (has_left && has_right) {
    *at = left;
    gaps.insert(at + 1, right);
  } else if (has_left || has_right) {
    *at = has_left ? left : right;
  } else {
    gaps.erase(at);
  }
  if (gaps.empty()) {
    const auto index = static_cast<std::ptrdiff_t>(b);
    blocks_.erase(blocks_.begin() + index);
    begins_.erase(begins_.begin() + index);
    longest_.erase(longest_.begin() + index);
    return;
  }
  find_longest(b);
  if (gaps.size() > most_gaps_of_block) split(b);
}

void IdleGaps::find_longest(std::size_t block) {
  begins_[block] = blocks_[block].front().begin;
  longest_[block] = 0;
  for (const Gap& gap : blocks_[block]) longest_[block] = std::max(longest_[block], gap.end - gap.begin);
}

void IdleGaps::split(std::size_t block) {
  const auto next = static_cast<std::ptrdiff_t>(block) + 1;
  Block& whole = blocks_[block];
  const auto middle = whole.begin() + static_cast<std::ptrdiff_t>(whole.size() / 2);
  Block second(middle, whole.end());
  whole.erase(middle, whole.end());
  blocks_.insert(blocks_.begin() + next, std::move(second));
  begins_.insert(begins_.begin() + next, 0);
  longest_.insert(longest_.begin() + next, 0);
  find_longest(block);
  find_longest(block + 1);
}

}  // namespace plimsoll
