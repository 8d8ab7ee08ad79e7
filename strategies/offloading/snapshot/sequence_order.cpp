// Runs that a plan can have later or earlier where memory is above the budget: gradients of weights, with what is made
// again for them, and the last readers of a large value. A local search.

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "strategies/offloading/snapshot/sequence_memory.h"

namespace plimsoll {

/// Runs that change their places, in the order in which they were found. Another run is bound to them where it uses
/// what one of them makes, overwrites what one reads or makes it anew, or the other way round; or where neither may run
/// again, as what adds to gradients of parameters.
class SequenceMemory::Moved {
 public:
  explicit Moved(const SequenceMemory& plan) : plan_(plan) {}

  void add(std::uint32_t r) {
    runs_.push_back(r);
    has_once_ |= plan_.model_.ops[plan_.runs_[r].op].once;
    for (const std::uint32_t l : plan_.runs_[r].lives) {
      writes_[l] |= plan_.writes(r, l);
      storages_[plan_.lives_[l].storage] = true;
    }
  }

  bool is_bound_to(std::uint32_t r) const {
    if (has_once_ && plan_.model_.ops[plan_.runs_[r].op].once) return true;
    return std::ranges::any_of(plan_.runs_[r].lives, [&](std::uint32_t l) {
      const auto used = writes_.find(l);
      return used == writes_.end() ? storages_.contains(plan_.lives_[l].storage) : used->second || plan_.writes(r, l);
    });
  }

  const std::vector<std::uint32_t>& runs() const { return runs_; }

 private:
  const SequenceMemory& plan_;
  std::vector<std::uint32_t> runs_;
  std::map<std::uint32_t, bool> writes_, storages_;  // by life that they use; by storage
  bool has_once_ = false;
};

/// Of runs up to `last` that one and all that have to stay behind it.
std::vector<std::uint32_t> SequenceMemory::followers(std::uint32_t first, std::uint32_t last) const {
  Moved moved(*this);
  moved.add(first);
  for (std::uint32_t r = first + 1; r <= last; ++r) {
    if (moved.is_bound_to(r)) moved.add(r);
  }
  return moved.runs();
}

/// Those runs, which are ascending, and all from `first` on that have to stay before them.
std::vector<std::uint32_t> SequenceMemory::leaders(std::uint32_t first, std::span<const std::uint32_t> runs) const {
  Moved moved(*this);
  for (std::uint32_t r = runs.back() + 1; r-- > first;) {
    if (std::ranges::binary_search(runs, r) || moved.is_bound_to(r)) moved.add(r);
  }
  return {moved.runs().rbegin(), moved.runs().rend()};
}

double SequenceMemory::above(Bytes budget) const {
  double sum = 0;
  for (const std::int64_t bytes : at_first_)
    sum += static_cast<double>(std::max<std::int64_t>(bytes - budget.count, 0));
  return sum;
}

/// The last run up to that one before which there is room for what all uses of the life from there on make.
std::uint32_t SequenceMemory::room_before(const Life& life, std::uint32_t run, Bytes budget) const {
  auto next = std::ranges::lower_bound(life.uses, run);
  std::int64_t made = 0;
  const auto add = [&](std::uint32_t use) {
    for (const std::uint32_t l : runs_[use].lives) {
      if (lives_[l].begin == use) made += model_.storages[lives_[l].storage].count;
    }
  };
  std::for_each(next, life.uses.end(), add);
  while (run > life.begin + 1 && at_first_[run - 1] + made > budget.count) {
    --run;
    if (next != life.uses.begin() && *std::prev(next) == run) add(*--next);
  }
  return run;
}

/// The best of some changes because of the row of runs above the budget that this one is the fullest of.
std::optional<OpSequence> SequenceMemory::moved_at(std::uint32_t full, Bytes budget) const {
  constexpr std::size_t most_tried = 16;
  std::uint32_t begin = full, end = full;
  while (begin > 0 && at_first_[begin - 1] > budget.count) --begin;
  while (end + 1 < runs_.size() && at_first_[end + 1] > budget.count) ++end;
  std::uint32_t room = end;  // where there is as much as is missing
  while (room + 1 < runs_.size() && at_first_[room] > 2 * budget.count - at_first_[full]) ++room;
  std::uint32_t backward = 0;
  while (backward < runs_.size() && model_.ops[runs_[backward].op].forward) ++backward;
  std::vector<std::uint32_t> there;  // lives within the forward or the backward
  for (std::uint32_t l = 0; l < lives_.size(); ++l) {
    const std::uint32_t from = lives_[l].begin, to = lives_[l].end();
    if (from < full && full <= to && (from >= backward || to < backward)) there.push_back(l);
  }
  std::ranges::stable_sort(there, std::ranges::greater{},
                           [&](std::uint32_t l) { return model_.storages[lives_[l].storage]; });
  const OpSequence given = sequence();
  std::optional<OpSequence> best;
  double least = above(budget);
  std::size_t tried = 0;
  const auto attempt = [&](const std::vector<std::uint32_t>& moved, std::uint32_t first, std::uint32_t last,
                           bool later) {
    ++tried;
    OpSequence changed(given.begin(), given.begin() + first);
    for (const bool those : {!later, later}) {
      for (std::uint32_t r = first; r <= last; ++r) {
        if (std::ranges::binary_search(moved, r) == those) changed.push_back(given[r]);
      }
    }
    changed.insert(changed.end(), given.begin() + last + 1, given.end());
    const double its = SequenceMemory(model_, changed).above(budget);
    if (its >= least) return;
    least = its;
    best = std::move(changed);
  };
  for (auto l = there.begin(); l != there.end() && tried < most_tried; ++l) {
    const Life& life = lives_[*l];
    if (life.begin >= backward) {
      for (const std::uint32_t last : {full, end, room}) attempt(followers(life.begin, last), life.begin, last, true);
    }
    const std::uint32_t from = room_before(life, begin, budget);
    const auto first = static_cast<std::size_t>(std::ranges::lower_bound(life.uses, from) - life.uses.begin());
    const std::span<const std::uint32_t> uses(life.uses.data() + first, life.uses.size() - first);
    if (life.begin < from && !uses.empty()) attempt(leaders(from, uses), from, uses.back(), false);
  }
  return best;
}

OpSequence SequenceMemory::rearranged(Bytes budget) const {
  constexpr int most_moves = 100;
  std::optional<SequenceMemory> now(*this);
  OpSequence found = sequence();
  for (int k = 0; k < most_moves; ++k) {
    std::vector<std::pair<std::int64_t, std::uint32_t>> fullest;  // of each row of runs above the budget
    for (std::uint32_t r = 0; r < now->at_first_.size(); ++r) {
      if (now->at_first_[r] <= budget.count) continue;
      if (r == 0 || now->at_first_[r - 1] <= budget.count) fullest.emplace_back(0, r);
      fullest.back() = std::max(fullest.back(), {now->at_first_[r], r});
    }
    std::ranges::sort(fullest, std::ranges::greater{});
    std::optional<OpSequence> moved;
    for (std::size_t row = 0; row < fullest.size() && !moved; ++row) moved = now->moved_at(fullest[row].second, budget);
    if (!moved) break;
    found = *std::move(moved);
    now.emplace(model_, found);
  }
  return found;
}

}  // namespace plimsoll
