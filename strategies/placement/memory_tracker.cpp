#include "strategies/placement/memory_tracker.h"

#include <algorithm>

namespace plimsoll {
namespace {

constexpr std::size_t most_instants = 8192;

/// All instants at which nodes start or end, or so many of them at equal distances.
std::vector<Nanoseconds> instants_of(const Emulation& times) {
  std::vector<Nanoseconds> all{0};
  all.insert(all.end(), times.start.begin(), times.start.end());
  all.insert(all.end(), times.finish.begin(), times.finish.end());
  std::ranges::sort(all);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  if (all.size() <= most_instants) return all;
  std::vector<Nanoseconds> some;
  for (std::size_t i = 0; i < most_instants; ++i) some.push_back(all[i * all.size() / most_instants]);
  return some;
}

}  // namespace

MemoryTracker::MemoryTracker(const OpDag& dag, const Machine& machine, std::vector<std::uint32_t> on,
                             const Emulation& times)
    : dag_(dag),
      machine_(machine),
      times_(times),
      on_(std::move(on)),
      instants_(instants_of(times)),
      profiles_(machine.size(), MemoryProfile(instants_.size())),
      uses_(dag.size),
      first_(machine.size()),
      seen_(machine.size(), 0) {
  for (std::uint32_t value = 0; value < dag.values.size(); ++value) count_value(value, 1);
  for (std::uint32_t r = 0; r < dag.residents.size(); ++r) {
    count_resident(r, 1);
    for (const std::uint32_t v : dag.residents[r].users) uses_[v].push_back(r);
  }
  for (std::uint32_t v = 0; v < dag.size; ++v) count(on_[v], slots_of_node(v), dag.workspace[v]);
}

MemoryTracker::Slots MemoryTracker::slots_between(Nanoseconds from, Nanoseconds to) const {
  if (to <= from) return {};
  const auto first = std::ranges::upper_bound(instants_, from) - 1;
  return {static_cast<std::size_t>(first - instants_.begin()),
          static_cast<std::size_t>(std::lower_bound(first, instants_.end(), to) - instants_.begin())};
}

MemoryTracker::Slots MemoryTracker::slots_of_value(std::uint32_t value, std::uint32_t p) const {
  const DagValue& each = dag_.values[value];
  Nanoseconds first = cannot_run, last = 0;
  const bool is_made = each.maker != no_node;
  const bool is_home = is_made && on_[each.maker] == p;
  if (is_home) last = times_.finish[each.maker];
  for (const std::uint32_t r : each.readers) {
    if (on_[r] == p) {
      first = std::min(first, times_.start[r]);
      last = std::max(last, times_.finish[r]);
    } else if (is_home) {
      last = std::max(last, times_.finish[each.maker] + machine_.transfer(p, on_[r], each.bytes));
    }
  }
  if (is_made) first = is_home ? times_.start[each.maker] : times_.finish[each.maker];
  return slots_between(first, last);
}

void MemoryTracker::count_value(std::uint32_t value, std::int64_t sign) {
  const DagValue& each = dag_.values[value];
  ++count_number_;
  there_.clear();
  const auto note = [&](std::uint32_t v) {
    if (seen_[on_[v]] != count_number_) there_.push_back(on_[v]);
    seen_[on_[v]] = count_number_;
  };
  if (each.maker != no_node) note(each.maker);
  for (const std::uint32_t r : each.readers) note(r);
  for (const std::uint32_t p : there_) count(p, slots_of_value(value, p), sign * each.bytes);
}

void MemoryTracker::count_resident(std::uint32_t resident, std::int64_t sign) {
  const DagResident& each = dag_.residents[resident];
  ++count_number_;
  there_.clear();
  for (const std::uint32_t v : each.users) {
    const std::uint32_t p = on_[v];
    if (seen_[p] != count_number_) {
      there_.push_back(p);
      first_[p] = times_.start[v];
    }
    seen_[p] = count_number_;
    first_[p] = std::min(first_[p], times_.start[v]);
  }
  for (const std::uint32_t p : there_) {
    const Slots all{0, instants_.size()};
    count(p, each.appears ? slots_between(first_[p], times_.makespan) : all, sign * each.bytes);
  }
}

void MemoryTracker::move(std::span<const std::uint32_t> nodes, std::uint32_t to) {
  std::vector<std::uint32_t> values, residents;
  for (const std::uint32_t v : nodes) {
    values.insert(values.end(), dag_.makes[v].begin(), dag_.makes[v].end());
    values.insert(values.end(), dag_.reads[v].begin(), dag_.reads[v].end());
    residents.insert(residents.end(), uses_[v].begin(), uses_[v].end());
  }
  for (std::vector<std::uint32_t>* each : {&values, &residents}) {
    std::ranges::sort(*each);
    each->erase(std::unique(each->begin(), each->end()), each->end());
  }
  const auto count_all = [&](std::int64_t sign) {
    for (const std::uint32_t value : values) count_value(value, sign);
    for (const std::uint32_t resident : residents) count_resident(resident, sign);
    for (const std::uint32_t v : nodes) count(on_[v], slots_of_node(v), sign * dag_.workspace[v]);
  };
  count_all(-1);
  for (const std::uint32_t v : nodes) on_[v] = to;
  count_all(1);
}

}  // namespace plimsoll
