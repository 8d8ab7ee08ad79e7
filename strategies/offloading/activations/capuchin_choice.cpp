#include "strategies/offloading/activations/capuchin_choice.h"

#include <algorithm>
#include <limits>
#include <unordered_map>

namespace plimsoll {
namespace {

class Chooser {
 public:
  Chooser(const OffloadModel& model, std::span<const Seconds> starts, const OpModel* ops)
      : model_(model),
        starts_(starts),
        ops_(ops),
        needed_(model.memory),
        chosen_(model.gaps.size(), false),
        away_(model.gaps.size()) {
    for (const OffloadItem& item : offload_items(model, 1)) {
      if (model.has_host && saved(item.gap)) swaps_.push_back({item.gap, free_time(model, starts, item)});
    }
    std::ranges::stable_sort(swaps_, [](const Swap& a, const Swap& b) { return a.free > b.free; });
    end_.resize(model.gaps.size());
    begin_.resize(model.gaps.size());
    if (ops != nullptr) find_recomputable();
  }

  CapuchinChoice run() && {
    bool evicts = true;
    while (true) {
      const auto fullest = std::ranges::max_element(needed_);
      const Bytes peak = fullest == needed_.end() ? Bytes{0} : *fullest;
      if (evicts) {
        choice_.peaks.push_back(peak);
      } else {
        choice_.peaks.back() = peak;
      }
      const std::optional<Eviction> next = choose(static_cast<std::uint32_t>(fullest - needed_.begin()));
      if (!next) return std::move(choice_);
      evicts = !chosen_[next->gap];
      take(*next, evicts);
    }
  }

 private:
  bool saved(std::uint32_t g) const { return model_.gaps[g].from < model_.turn && model_.turn <= model_.gaps[g].until; }

  /// Gaps of storages whose values can all be made again.
  void find_recomputable() {
    evicted_.assign(ops_->values.size(), false);
    marked_.assign(ops_->ops.size(), 0);
    std::unordered_map<std::uint32_t, std::uint32_t> storage_of;  // by tensor
    for (const ModelValue& value : ops_->values) storage_of[value.tensor.index] = value.storage;
    for (std::uint32_t g = 0; g < model_.gaps.size(); ++g) {
      if (!saved(g) || !model_.gaps[g].holds_positions()) continue;
      const std::uint32_t storage = storage_of.at(model_.gaps[g].tensor.index);
      const auto again = [&](std::uint32_t v) { return can_evict(*ops_, v); };
      if (std::ranges::all_of(ops_->in_storage[storage], again)) recomputable_.emplace_back(storage, g);
    }
  }

  bool covers(std::uint32_t g, std::uint32_t p) const {
    return !away_[g].holds(p) && model_.gaps[g].from < p && p < model_.gaps[g].until;
  }

  /// What is made again is away all through its gap, and so is a copy that is waited for; others while they hide.
  void take(const Eviction& next, bool is_new) {
    const OffloadGap& gap = model_.gaps[next.gap];
    Window away{gap.from + 1, gap.until};
    if (is_new && !next.recompute) {
      leaving_ = with(leaving_, next.gap, &OffloadGap::made);
      returning_ = with(returning_, next.gap, &OffloadGap::until);
      queued_free_time(next.gap);  // for its dates
      while (away.first < away.end && starts_[away.first] < end_[next.gap]) ++away.first;
      while (away.first < away.end && starts_[away.end] > begin_[next.gap]) --away.end;
    }
    for (std::uint32_t p = away.first; p < away.end; ++p) {
      if (!away_[next.gap].holds(p)) needed_[p] -= gap.bytes;
    }
    away_[next.gap] = away;
    chosen_[next.gap] = true;
    if (next.recompute) {
      for (const std::uint32_t v : ops_->in_storage[*next.recompute]) evicted_[v] = true;
    }
    if (is_new) choice_.evictions.push_back(next);
  }

  /// The most idle copy that hides, queued behind those chosen, and is away at p; else the cheaper of a copy that does
  /// not and of recomputation.
  std::optional<Eviction> choose(std::uint32_t p) {
    const Swap* swap = nullptr;
    Seconds most_free;
    int tests = 0;
    constexpr int most_tests = 32;  // in the order of free time
    for (Swap& candidate : swaps_) {
      if (!covers(candidate.gap, p)) continue;
      Seconds free = std::min(candidate.free, away_at(candidate.gap, p));
      if (chosen_[candidate.gap]) {  // to wait for it
        free = std::min(starts_[p] - end_[candidate.gap], begin_[candidate.gap] - starts_[p + 1]);
      }
      if (!chosen_[candidate.gap] && free >= Seconds{0} && tests++ < most_tests) {
        candidate.free = std::min(candidate.free, queued_free_time(candidate.gap));
        free = std::min({candidate.free, starts_[p] - end_[candidate.gap], begin_[candidate.gap] - starts_[p + 1]});
        if (free >= Seconds{0}) return Eviction{candidate.gap, {}};
      }
      if (swap != nullptr && free <= most_free) continue;
      swap = &candidate;
      most_free = free;
    }
    std::optional<Eviction> best;
    double best_time = 0, best_rate = -1;
    for (const auto& [storage, g] : recomputable_) {
      if (chosen_[g] || !covers(g, p)) continue;
      const double time = recompute_time(storage), bytes = static_cast<double>(model_.gaps[g].bytes.count);
      const double rate = time > 0 ? bytes / time : std::numeric_limits<double>::infinity();
      if (rate <= best_rate) continue;
      best = Eviction{g, storage};
      best_time = time;
      best_rate = rate;
    }
    if (swap == nullptr || (best && best_time < -most_free.value)) return best;
    return Eviction{swap->gap, {}};
  }

  /// Time that copies alone on their links leave over around p.
  Seconds away_at(std::uint32_t g, std::uint32_t p) const {
    const OffloadGap& gap = model_.gaps[g];
    return std::min(starts_[p] - starts_[gap.made + 1] - model_.out.time(gap.bytes),
                    starts_[gap.until] - starts_[p + 1] - model_.in.time(gap.bytes));
  }

  /// Gaps in the order of a position, with one more.
  std::vector<std::uint32_t> with(std::vector<std::uint32_t> gaps, std::uint32_t g,
                                  std::uint32_t OffloadGap::*position) const {
    const auto before = [&](std::uint32_t a, std::uint32_t b) {
      return model_.gaps[a].*position < model_.gaps[b].*position;
    };
    gaps.insert(std::ranges::upper_bound(gaps, g, before), g);
    return gaps;
  }

  /// The least time, of all chosen copies and this one, between the end of the way there and the start of the way back,
  /// when each direction takes one at a time.
  Seconds queued_free_time(std::uint32_t g) {
    Seconds busy;
    for (const std::uint32_t k : with(leaving_, g, &OffloadGap::made)) {
      const OffloadGap& gap = model_.gaps[k];
      busy = end_[k] = std::max(busy, starts_[gap.made + 1]) + model_.out.time(gap.bytes);
    }
    const std::vector<std::uint32_t> returning = with(returning_, g, &OffloadGap::until);
    Seconds begin = starts_.back(), least = starts_.back();
    for (std::size_t i = returning.size(); i-- > 0;) {
      const OffloadGap& gap = model_.gaps[returning[i]];
      begin = begin_[returning[i]] = std::min(begin, starts_[gap.until]) - model_.in.time(gap.bytes);
      least = std::min(least, begin - end_[returning[i]]);
    }
    return least;
  }

  /// Of its makers, and of the makers of what they read and is made again too.
  double recompute_time(std::uint32_t storage) {
    ++mark_;
    double time = 0;
    std::vector<std::uint32_t> open;
    for (const std::uint32_t v : ops_->in_storage[storage]) open.push_back(*ops_->values[v].maker);
    while (!open.empty()) {
      const std::uint32_t o = open.back();
      open.pop_back();
      if (marked_[o] == mark_) continue;
      marked_[o] = mark_;
      time += ops_->ops[o].ways.back().time.value;
      for (const std::uint32_t v : ops_->ops[o].reads) {
        if (evicted_[v]) open.push_back(*ops_->values[v].maker);
      }
    }
    return time;
  }

  /// Positions at which a value is away; at none, if empty.
  struct Window {
    std::uint32_t first = 0, end = 0;
    bool holds(std::uint32_t p) const { return first <= p && p < end; }
  };

  struct Swap {
    std::uint32_t gap = 0;
    Seconds free;  ///< what its copies leave over; negative: by how much they exceed the gap
  };

  const OffloadModel& model_;
  std::span<const Seconds> starts_;
  const OpModel* ops_;
  std::vector<Bytes> needed_;                                          // by position
  std::vector<bool> chosen_;                                           // by gap
  std::vector<Window> away_;                                           // by gap
  std::vector<Swap> swaps_;                                            // most free time first
  std::vector<std::uint32_t> leaving_, returning_;                     // gaps chosen to be copied
  std::vector<Seconds> end_, begin_;                                   // by gap: of the way there, of the way back
  std::vector<std::pair<std::uint32_t, std::uint32_t>> recomputable_;  // storage, gap
  Evicted evicted_;                                                    // values that are made again
  std::vector<std::uint64_t> marked_;                                  // by op: the last walk that met it
  std::uint64_t mark_ = 0;
  CapuchinChoice choice_;
};

}  // namespace

CapuchinChoice choose_evictions(const OffloadModel& model, std::span<const Seconds> starts, const OpModel* ops) {
  return Chooser(model, starts, ops).run();
}

}  // namespace plimsoll
