// The strategy `capuchin`: measure one iteration; evict what is idle at the peak, most free time first, by copying it
// to the host while copies hide, and by recomputation where that costs less; let feedback move prefetches forward.
// Source: Peng, Shi, Dai, Jin, Ma, Xiong, Yang, Qian, "Capuchin: tensor-based GPU memory management for deep learning",
// ASPLOS 2020.

#include <algorithm>
#include <limits>
#include <numeric>
#include <unordered_map>

#include "sim/core/expects.h"
#include "sim/engine/event/event_engine.h"
#include "sim/lower/lowering.h"
#include "strategies/api/front.h"
#include "strategies/api/strategy.h"
#include "strategies/models/op_model.h"
#include "strategies/models/op_sequence.h"
#include "strategies/models/recompute_order.h"
#include "strategies/offloading/activations/offload_moves.h"
#include "strategies/offloading/activations/offload_options.h"
#include "strategies/offloading/activations/offload_selection.h"

namespace plimsoll {
namespace {

// What Capuchin evicts, in the order in which it decides: to the host while copies hide, then whatever costs less, a
// copy or running its makers again.

struct Eviction {
  std::uint32_t gap = 0;
  std::optional<std::uint32_t> recompute;  ///< the storage of the op model whose values are made again; unset: copied
};

/// With the first k evictions, peaks[k] is needed, the memory of recomputation aside.
struct CapuchinChoice {
  std::vector<Eviction> evictions;
  std::vector<Bytes> peaks;
};

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

/// `starts`: when each position of the measured iteration begins, and its end. `ops` is null where nothing may be
/// recomputed, else the tape is plain training's.
CapuchinChoice choose_evictions(const OffloadModel& model, std::span<const Seconds> starts, const OpModel* ops) {
  return Chooser(model, starts, ops).run();
}

enum class CapuchinRecompute : std::uint8_t { fastest, on, off };

struct CapuchinOptions : OffloadOptions {
  CapuchinRecompute recompute = CapuchinRecompute::fastest;
};

/// The measured iteration: when each position begins, and when the last one ends.
std::vector<Seconds> measured_starts(const PartTask& task, const OffloadModel& model) {
  const Tape tape = offload_tape(model, {});
  const std::variant<Schedule, std::string> made = lower(task.problem, task.partition, std::span(&tape, 1));
  EXPECTS(std::holds_alternative<Schedule>(made));
  const Timeline timeline = simulate_event(std::get<Schedule>(made), task.problem.platform);
  std::vector<Seconds> starts;
  for (std::size_t p = 0; p < model.positions(); ++p) starts.push_back(timeline.steps[p].start);
  starts.push_back(model.positions() > 0 ? timeline.steps[model.positions() - 1].finish : Seconds{});
  return starts;
}

/// When the copies back must begin, one at a time in the order in which they are needed.
std::vector<Seconds> swap_in_starts(const OffloadModel& model, std::span<const Seconds> starts,
                                    std::span<const OffloadItem> items) {
  const auto until = [&](std::size_t i) { return model.gaps[items[i].gap].until; };
  std::vector<std::size_t> order(items.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater{}, until);
  std::vector<Seconds> begin(items.size());
  Seconds busy = starts.back();
  for (const std::size_t i : order) {
    busy = begin[i] = std::min(busy, starts[until(i)]) - model.in.time(items[i].bytes);
  }
  return begin;
}

/// Prefetches begin at the last access before they must; one that comes too late begins 5 % of its copy earlier in the
/// next iteration. The fastest iteration counts.
std::optional<PlacedCopies> place_with_feedback(const OffloadModel& model, std::span<const Seconds> starts,
                                                std::span<const OffloadItem> items, Bytes budget) {
  std::vector<Seconds> begin = swap_in_starts(model, starts, items);
  std::optional<PlacedCopies> best;
  constexpr int most_iterations = 20;
  for (int iteration = 0; iteration < most_iterations; ++iteration) {
    std::vector<std::uint32_t> wanted;
    for (std::size_t i = 0; i < items.size(); ++i) {
      const OffloadGap& gap = model.gaps[items[i].gap];
      const auto after = std::upper_bound(starts.begin() + gap.from + 1, starts.begin() + gap.until, begin[i]);
      const auto at = static_cast<std::uint32_t>(after - starts.begin() - 1);
      wanted.push_back(std::clamp(at, gap.from + 1, gap.until));
    }
    std::optional<PlacedCopies> made = placed_items(model, items, budget, wanted);
    if (!made) return best;
    bool any_late = false;
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (made->late[i] <= Seconds{0} || wanted[i] <= model.gaps[items[i].gap].from + 1) continue;
      any_late = true;
      begin[i] = begin[i] - 0.05 * model.in.time(items[i].bytes);
    }
    keep_faster(best, std::move(made));
    if (!any_late) break;
  }
  return best;
}

/// For budgets that hold it whatever copies take, on faster links too.
void add_placed(const PartTask& task, const OffloadModel& model, std::span<const Seconds> starts,
                std::span<const OffloadItem> items, Bytes budget, Front& pool) {
  const std::optional<PlacedCopies> placed = place_with_feedback(model, starts, items, budget);
  if (!placed) return;
  std::optional<PlannedTape> made = planned_moves(task, model, placed->moves);
  if (made) pool.add(std::move(*made), std::max(made->peak, budget));
}

enum class Passive : std::uint8_t { not_yet, yes };

/// Copies chosen ahead. Where the budget still does not hold, since recomputation takes memory too: more copies in
/// passive mode, what is idle longest first. Where more evictions are to come, short tapes get a plan for as much
/// memory as these take, too.
void add_plan(const PartTask& task, const OffloadModel& model, std::span<const Seconds> starts,
              const std::vector<OffloadItem>& ahead, Bytes budget, Passive passive, Front& pool) {
  std::vector<Bytes> needed = model.memory;  // beside them
  std::vector<bool> taken(model.gaps.size(), false);
  for (const OffloadItem& item : ahead) {
    const OffloadGap& gap = model.gaps[item.gap];
    taken[item.gap] = true;
    for (std::uint32_t p = gap.from + 1; p < gap.until; ++p) needed[p] -= item.bytes;
  }
  std::vector<OffloadItem> items = ahead;
  const Bytes most = needed.empty() ? Bytes{0} : *std::ranges::max_element(needed);
  constexpr std::size_t short_tape = 1000;
  if (most > budget && passive == Passive::not_yet && model.positions() <= short_tape) {
    add_placed(task, model, starts, items, most, pool);
  }
  if (most > budget) {
    std::vector<OffloadItem> others = offload_items(model, 1);
    std::erase_if(others, [&](const OffloadItem& item) { return taken[item.gap]; });
    const Selection more = select_items(model, std::move(others), SelectionRule::free_time, std::move(needed));
    const std::size_t count = more.needed(budget).value_or(more.items.size());
    items.insert(items.end(), more.items.begin(), more.items.begin() + static_cast<std::ptrdiff_t>(count));
    if (!more.needed(budget)) budget = more.peaks.back();
  }
  std::ranges::stable_sort(items, {}, &OffloadItem::gap);
  add_placed(task, model, starts, items, budget, pool);
}

/// The first `count` evictions of a choice.
void add_plan(const PartTask& task, const OffloadModel& model, std::span<const Seconds> starts, const OpModel* ops,
              std::span<const Eviction> evictions, Bytes budget, Passive passive, Front& pool) {
  std::vector<OffloadItem> items;
  Evicted evicted(ops == nullptr ? 0 : ops->values.size(), false);
  bool recomputes = false;
  for (const Eviction& eviction : evictions) {
    if (eviction.recompute) {
      EXPECTS(ops != nullptr);
      for (const std::uint32_t v : ops->in_storage[*eviction.recompute]) evicted[v] = true;
      recomputes = true;
    } else {
      items.push_back({eviction.gap, {}, model.gaps[eviction.gap].bytes});
    }
  }
  if (!recomputes) return add_plan(task, model, starts, items, budget, passive, pool);
  const std::optional<OpSequence> sequence = recompute_order(*ops, evicted);
  if (!sequence) return;
  const PlannedTape tape = planned_ops(task, *sequence);
  std::variant<OffloadModel, std::string> made = offload_model(task, &tape.tape);
  auto& changed = std::get<OffloadModel>(made);
  changed.out = model.out;
  changed.in = model.in;
  std::vector<bool> moved(task.problem.graph.tensors.size(), false);
  for (const OffloadItem& item : items) moved[model.gaps[item.gap].tensor.index] = true;
  items.clear();
  for (const std::uint32_t g : saved_gaps(changed)) {
    const OffloadGap& gap = changed.gaps[g];
    if (moved[gap.tensor.index] && gap.holds_positions()) items.push_back({g, {}, gap.bytes});
  }
  add_plan(task, changed, starts_without_copies(changed), items, budget, passive, pool);
}

/// At each level of memory with as many evictions as it takes.
void add_plans(const PartTask& task, const OffloadModel& model, std::span<const Seconds> starts, const OpModel* ops,
               std::optional<std::int64_t> levels, Front& pool) {
  const CapuchinChoice choice = choose_evictions(model, starts, ops);
  for (const Bytes budget : memory_levels(choice.peaks.back(), choice.peaks.front(), levels, model.positions())) {
    const auto enough = std::ranges::find_if(choice.peaks, [&](Bytes peak) { return peak <= budget; });
    const auto count = static_cast<std::size_t>(enough - choice.peaks.begin());
    const Passive passive = count == choice.evictions.size() ? Passive::yes : Passive::not_yet;
    add_plan(task, model, starts, ops, std::span(choice.evictions).first(count), budget, passive, pool);
  }
}

/// The tape with links of the rates that plans are made for: fixed ones around that at which all that may leave could
/// do so in one iteration, and of these only those that the links reach, but for the least.
std::vector<OffloadModel> with_assumed_rates(const OffloadModel& model) {
  Bytes may_leave;
  Seconds time;
  for (const std::uint32_t g : saved_gaps(model)) may_leave += model.gaps[g].bytes;
  for (const Seconds position : model.time) time += position;
  if (!model.has_host || may_leave == Bytes{0} || time == Seconds{0}) return {model};
  constexpr std::size_t short_tape = 1000;
  const bool is_short = model.positions() <= short_tape;
  const double step = is_short ? 2 : 4;
  const double least = static_cast<double>(may_leave.count) / time.value / (is_short ? 8.0 : 4.0);
  const int steps = is_short ? 6 : 2;
  const auto reached = [&](BytesPerSecond bandwidth, int most) {
    double rate = least;
    for (int k = 0; k < most && rate * step <= bandwidth.value; ++k) rate *= step;
    return BytesPerSecond{rate};
  };
  std::vector<OffloadModel> models;
  for (int k = 0; k <= steps; ++k) {
    OffloadModel assumed = model;
    assumed.out.bandwidth = reached(model.out.bandwidth, k);
    assumed.in.bandwidth = reached(model.in.bandwidth, k);
    const auto same = [&](const OffloadModel& other) {
      return other.out.bandwidth == assumed.out.bandwidth && other.in.bandwidth == assumed.in.bandwidth;
    };
    if (std::ranges::none_of(models, same)) models.push_back(std::move(assumed));
  }
  return models;
}

Plans capuchin_plans(const PartTask& task, const CapuchinOptions& options, const Tape* before) {
  const std::variant<OffloadModel, std::string> made = offload_model(task, before);
  if (const std::string* why = std::get_if<std::string>(&made)) return {{}, *why};
  const auto& model = std::get<OffloadModel>(made);
  Front pool;
  pool.add(planned_moves(task, model, {}));
  const std::vector<Seconds> starts = measured_starts(task, model);
  std::optional<OpModel> ops;
  if (before == nullptr && options.recompute != CapuchinRecompute::off) ops = op_model(task);
  std::vector<const OpModel*> may_run_again;
  if (model.has_host && (options.recompute != CapuchinRecompute::on || !ops)) may_run_again.push_back(nullptr);
  if (ops) may_run_again.push_back(&*ops);
  for (const OffloadModel& assumed : with_assumed_rates(model)) {
    for (const OpModel* again : may_run_again) add_plans(task, assumed, starts, again, options.levels, pool);
  }
  return {std::move(pool), "no more than this can be offloaded or recomputed"};
}

constexpr auto capuchin_options = options_of<CapuchinOptions>(
    option_of<&CapuchinOptions::recompute>({
        .name = "recompute",
        .words = "auto on off",
        .help = "on: recompute where that costs less than a copy; off: copy only; auto: the faster of the two; after "
                "another pass nothing more is recomputed",
    }),
    levels_option);

}  // namespace

extern constinit const StrategyInfo capuchin_strategy{
    .name = "capuchin",
    .family = Family::offloading,
    .summary =
        "offloads the values with the most free time in a measured iteration, and recomputes where that costs less",
    .source = "Peng, Shi, Dai, Jin, Ma, Xiong, Yang, Qian, \"Capuchin\", ASPLOS 2020",
    .options = capuchin_options,
    .kind = planned_at_once<CapuchinOptions, capuchin_plans>(),
    .effort = {.stages = 300, .ops = 5000},
};

}  // namespace plimsoll
