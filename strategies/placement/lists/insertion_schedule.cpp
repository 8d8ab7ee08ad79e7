#include "strategies/placement/lists/insertion_schedule.h"

#include <algorithm>
#include <tuple>

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

bool may_run_on(const OpDag& dag, const Machine& machine, std::uint32_t node, std::size_t processor) {
  return machine.memory[processor] > 0 && time_on(dag, machine, node, processor) != cannot_run;
}

InsertionSchedule::InsertionSchedule(const OpDag& dag, const Machine& machine)
    : dag_(dag),
      machine_(machine),
      idle_(machine.size()),
      on_(dag.size, no_node),
      group_on_(dag.together.size(), no_node),
      start_(dag.size),
      finish_(dag.size) {}

bool InsertionSchedule::may_take(std::uint32_t node, std::size_t processor) const {
  const std::uint32_t group = dag_.group[node];
  if (group != no_node && group_on_[group] != no_node) return group_on_[group] == processor;
  return may_run_on(dag_, machine_, node, processor);
}

Nanoseconds InsertionSchedule::arrival(std::uint32_t node, std::size_t processor) const {
  Nanoseconds ready = 0;
  for (const DagEdge& edge : dag_.in[node]) {
    const Nanoseconds sent = edge.sends ? machine_.transfer(on_[edge.node], processor, edge.bytes) : 0;
    ready = std::max(ready, finish_[edge.node] + sent);
  }
  return ready;
}

std::optional<std::uint32_t> InsertionSchedule::earliest_finish(std::uint32_t node) {
  std::optional<std::uint32_t> best;
  Nanoseconds least = cannot_run;
  for (std::uint32_t p = 0; p < machine_.size(); ++p) {
    if (!may_take(node, p)) continue;
    const Nanoseconds time = time_on(dag_, machine_, node, p), ready = arrival(node, p);
    if (ready + time >= least) continue;
    const Nanoseconds finish = idle_[p].earliest(ready, time) + time;
    if (finish >= least) continue;
    least = finish;
    best = p;
  }
  return best;
}

void InsertionSchedule::place(std::uint32_t node, std::uint32_t processor) {
  EXPECTS(may_take(node, processor));
  const Nanoseconds time = time_on(dag_, machine_, node, processor);
  start_[node] = idle_[processor].earliest(arrival(node, processor), time);
  finish_[node] = start_[node] + time;
  idle_[processor].take(start_[node], time);
  makespan_ = std::max(makespan_, finish_[node]);
  on_[node] = processor;
  if (dag_.group[node] != no_node) group_on_[dag_.group[node]] = processor;
  placed_.push_back(node);
}

Placement InsertionSchedule::placement() && {
  // What takes no time comes before what starts at the same instant and takes some.
  const auto earlier = [&](std::uint32_t a, std::uint32_t b) {
    return std::tie(start_[a], finish_[a]) < std::tie(start_[b], finish_[b]);
  };
  Placement made;
  made.order.resize(machine_.size());
  for (const std::uint32_t v : placed_) made.order[on_[v]].push_back(v);
  for (std::vector<std::uint32_t>& order : made.order) std::ranges::stable_sort(order, earlier);
  made.on = std::move(on_);
  return made;
}

}  // namespace plimsoll
