#include "sim/judge/sums.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace plimsoll {

bool Contributions::add(std::size_t contribution) {
  const std::size_t word = contribution / 64;
  const std::uint64_t bit = std::uint64_t{1} << (contribution % 64);
  if (word >= words_.size()) words_.resize(word + 1);
  if ((words_[word] & bit) != 0) return false;
  words_[word] |= bit;
  ++count_;
  return true;
}

bool Contributions::add(const Contributions& others) {
  if (words_.size() < others.words_.size()) words_.resize(others.words_.size());
  bool disjoint = true;
  for (std::size_t w = 0; w < others.words_.size(); ++w) {
    disjoint &= (words_[w] & others.words_[w]) == 0;
    count_ += static_cast<std::size_t>(std::popcount(others.words_[w] & ~words_[w]));
    words_[w] |= others.words_[w];
  }
  return disjoint;
}

bool Contributions::has(std::size_t contribution) const {
  const std::size_t word = contribution / 64;
  return word < words_.size() && (words_[word] >> (contribution % 64) & 1U) != 0;
}

bool operator==(const Contributions& a, const Contributions& b) {
  if (a.count_ != b.count_) return false;  // then what one has beyond the other's words is zero
  const std::size_t both = std::min(a.words_.size(), b.words_.size());
  return std::equal(a.words_.begin(), a.words_.begin() + static_cast<std::ptrdiff_t>(both), b.words_.begin());
}

RangedSums::RangedSums(Bytes offset, Bytes length) : parts_{{offset.count, (offset + length).count, {}}} {}

bool RangedSums::add(std::size_t contribution) {
  bool is_new = true;
  for (Part& part : parts_) is_new &= part.held.add(contribution);
  return is_new;
}

bool RangedSums::add(const RangedSums& others) {
  bool disjoint = true;
  std::vector<Part> made;
  for (Part& mine : parts_) {
    std::int64_t at = mine.offset;
    for (const Part& theirs : others.parts_) {
      const std::int64_t from = std::max(at, theirs.offset), to = std::min(mine.end, theirs.end);
      const bool is_empty = mine.offset == mine.end && from == to;
      if (from >= to && !is_empty) continue;
      if (at < from) made.push_back({at, from, mine.held});
      made.push_back({from, to, mine.held});
      disjoint &= made.back().held.add(theirs.held);
      at = to;
      if (is_empty) break;
    }
    if (at < mine.end || made.empty()) made.push_back({at, mine.end, std::move(mine.held)});
  }
  parts_ = std::move(made);
  join_equal_neighbours();
  return disjoint;
}

RangedSums RangedSums::within(Bytes offset, Bytes length) const {
  RangedSums cut(offset, length);
  cut.add(*this);
  return cut;
}

bool RangedSums::all_have(std::size_t count) const {
  return std::ranges::all_of(parts_, [count](const Part& part) { return part.held.count() == count; });
}

void RangedSums::join_equal_neighbours() {
  std::size_t last = 0;
  for (std::size_t p = 1; p < parts_.size(); ++p) {
    if (parts_[p].held == parts_[last].held) {
      parts_[last].end = parts_[p].end;
    } else if (++last != p) {
      parts_[last] = std::move(parts_[p]);
    }
  }
  parts_.resize(std::min(parts_.size(), last + 1));
}

}  // namespace plimsoll
