// The strategy `offload_exact`: of all ways to take values to the host and back whole, between their uses, the fastest,
// with a bound on what any such schedule takes. For short chains and graphs. Source: own search for the problem of
// Beaumont, Eyraud-Dubois, Shilova, "Optimal GPU-CPU offloading strategies for deep neural network training", Euro-Par
// 2020, which is NP-hard in the strong sense.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <queue>
#include <string>
#include <unordered_map>

#include "sim/core/expects.h"
#include "sim/core/tolerance.h"
#include "strategies/api/front.h"
#include "strategies/list.h"
#include "strategies/models/op_sequence.h"
#include "strategies/offloading/activations/offload_bound.h"
#include "strategies/offloading/activations/offload_moves.h"
#include "strategies/offloading/activations/offload_options.h"
#include "strategies/offloading/activations/offload_selection.h"

namespace plimsoll {
namespace {

// The search of `offload_exact`: a tape's computes in their order, values that leave whole and come back whole between
// their uses, in any order, one copy at a time each way, copies to the host as soon as the one before them has ended.
//
// Best first over rows of decisions: the next compute begins, a value is asked back, values that have been made are
// sent behind each other. Each begins as early as the row before it and memory allow. Of two rows that have begun,
// sent and asked back the same, one that is no later in anything makes the other needless; a row's bound is the date
// that it has reached and the least time from there in pieces of any size (offload_bound.h).

/// What memory may be counted on that a copy to the host sets free.
enum class Dates : std::uint8_t {
  waited_for,  ///< what has been waited for: the budget holds whatever copies take, and a tape can say it
  known,       ///< what is free at its date: no tape of this order of computes does better
};

struct OffloadSearch {
  std::optional<Tape> tape;         ///< the fastest, where one is faster than the limit and dates are waited for
  std::optional<Seconds> bound;     ///< no schedule takes less; unset: none is faster than the limit
  std::optional<Seconds> makespan;  ///< of the fastest, for one micro-batch, if nobody shares the links
  bool complete = true;             ///< it did not end for its count of rows
};

constexpr std::size_t most_items = 20;
constexpr Seconds never_copied{std::numeric_limits<double>::infinity()};
constexpr std::uint32_t no_row = std::numeric_limits<std::uint32_t>::max();

using Items = std::uint32_t;  // a set of items, one bit each

enum class RowKind : std::uint8_t { start, compute, leave, come_back };

/// Decisions up to one of them.
struct Row {
  std::uint32_t before = no_row;
  std::uint32_t position = 0;  ///< of the next compute
  Items sent = 0, asked = 0;
  RowKind kind = RowKind::start;
  std::uint8_t item = 0;
  Seconds begin;  ///< of the last compute, or when the last value asked back may come
  Seconds clock;  ///< what is decided next begins no earlier, but for copies to the host
  Seconds computed, out_free, in_begin, in_free;
  Seconds idle_from, idle_until;  ///< when the way to the host last had nothing to do
  /// By item: when it is made; once it was sent, when it has left; once it was asked back, when it arrives.
  std::array<Seconds, most_items> date = {};
};

bool holds(Items items, std::size_t i) {
  return ((items >> i) & 1U) != 0;
}

class DateSearch {
 public:
  DateSearch(const OffloadModel& model, const std::vector<OffloadItem>& items, Bytes budget, Dates dates, Seconds limit)
      : model_(model), budget_(budget), dates_(dates), limit_(limit), rest_(fluid_rests(model, budget)) {
    for (const OffloadItem& item : items) {
      EXPECTS(item.chunk.count == 1);
      if (matters(item)) items_.push_back(item);
    }
    EXPECTS(items_.size() <= most_items);
    for (std::size_t i = 0; i < items_.size(); ++i) {
      for (std::size_t k = 0; k < items_.size(); ++k) {
        if (gap(i).earlier == items_[k].gap) earlier_[i] = k;
      }
    }
  }

  OffloadSearch run(Seconds enough, std::size_t most_rows) {
    if (bound(Row{}) >= limit_) return {};
    keep(Row{});
    while (!open_.empty()) {
      const Open next = open_.top();
      open_.pop();
      if (needless_[next.row]) continue;
      if (rows_[next.row].position == model_.positions()) return found(next.row);
      if (rows_.size() >= most_rows) {
        OffloadSearch cut = best_ == no_row ? OffloadSearch{} : found(best_);
        cut.bound = next.bound;
        cut.complete = false;
        return cut;
      }
      expand(next.row);
      if (best_ != no_row && reaches(rows_[best_].computed, enough)) return found(best_);
    }
    return {};
  }

 private:
  struct Open {
    Seconds bound;
    std::uint32_t position = 0, row = 0;

    friend bool operator<(const Open& a, const Open& b) {  // the first to be expanded is the largest
      return std::tuple(b.bound.value, a.position, a.row) < std::tuple(a.bound.value, b.position, b.row);
    }
  };

  /// Whether memory is ever short in its gap.
  bool matters(const OffloadItem& item) const {
    const OffloadGap& gap = model_.gaps[item.gap];
    const auto first = model_.memory.begin() + gap.from + 1, end = model_.memory.begin() + gap.until;
    return std::any_of(first, end, [&](Bytes needed) { return needed > budget_; });
  }

  const OffloadGap& gap(std::size_t i) const { return model_.gaps[items_[i].gap]; }

  OffloadSearch found(std::uint32_t last) const {
    OffloadSearch search{.tape = {}, .bound = rows_[last].computed, .makespan = rows_[last].computed, .complete = true};
    if (dates_ == Dates::waited_for) search.tape = tape(last);
    return search;
  }

  // --- memory

  /// When the device's copy of a value that was sent is free, its last use before included.
  Seconds free_date(const Row& row, std::size_t i) const {
    return gap(i).from + 1 < row.position ? row.date[i] : std::max(row.date[i], row.computed);
  }

  bool away(const Row& row, std::size_t i) const {
    return holds(row.sent & ~row.asked, i) && gap(i).from < row.position;
  }

  /// The first date from `now` on at which the next compute (none: what stands between it and the one before) and
  /// `more` bytes fit.
  std::optional<Seconds> fits_from(const Row& row, Seconds now, bool computes, Bytes more) const {
    while (true) {
      const std::size_t p = row.position;
      Bytes needed = more + (computes ? model_.memory[p] : now < row.computed ? model_.memory[p - 1] : model_.held[p]);
      std::optional<Seconds> next;
      if (!computes && now < row.computed) next = row.computed;
      for (std::size_t i = 0; i < items_.size(); ++i) {
        if (!away(row, i)) continue;
        const Seconds date = free_date(row, i);
        if (date <= now) {
          needed -= items_[i].bytes;
        } else if (!next || date < *next) {
          next = date;
        }
      }
      if (needed <= budget_) return now;
      if (!next) return std::nullopt;
      now = *next;
    }
  }

  // --- decisions

  void expand(std::uint32_t from) {
    const Row row = rows_[from];
    // What begins after all that else may come next can be sent later.
    Seconds last = compute(row, from);
    for (std::size_t i = 0; i < items_.size(); ++i) {
      if (away(row, i)) last = std::max(last, come_back(row, from, i));
    }
    for (std::size_t i = 0; i < items_.size(); ++i) {
      if (can_leave(row, i)) send(row, from, i, last);
    }
  }

  static Row after(const Row& row, std::uint32_t index, RowKind kind, std::size_t item) {
    Row next = row;
    next.before = index;
    next.kind = kind;
    next.item = static_cast<std::uint8_t>(item);
    return next;
  }

  /// When it begins; never, where something must be decided before.
  Seconds compute(const Row& row, std::uint32_t from) {
    Row next = after(row, from, RowKind::compute, 0);
    const std::uint32_t p = next.position;
    Seconds start = std::max(next.clock, next.computed);
    for (std::size_t i = 0; i < items_.size(); ++i) {
      if (gap(i).until != p || !holds(next.sent, i)) continue;
      if (!holds(next.asked, i)) return never_copied;
      start = std::max(start, next.date[i]);
    }
    const std::optional<Seconds> fits = fits_from(next, start, true, Bytes{0});
    if (!fits) return never_copied;
    // A copy back that begins behind it can be asked for behind it.
    if (row.kind == RowKind::come_back && row.in_begin >= *fits + model_.time[p]) return *fits;
    next.begin = *fits;
    next.computed = *fits + model_.time[p];
    next.clock = dates_ == Dates::known ? *fits : next.computed;
    for (std::size_t i = 0; i < items_.size(); ++i) {
      if (gap(i).made == p) next.date[i] = next.computed;
    }
    ++next.position;
    keep(next);
    return *fits;
  }

  Seconds come_back(const Row& row, std::uint32_t from, std::size_t i) {
    Row next = after(row, from, RowKind::come_back, i);
    Seconds begin = std::max(next.clock, free_date(next, i));
    if (dates_ == Dates::known) begin = std::max(begin, next.in_free);
    const std::optional<Seconds> fits = fits_from(next, begin, false, items_[i].bytes);
    if (!fits) return never_copied;
    // Of two asked back together the one that is needed first comes first.
    const bool together = row.kind == RowKind::come_back && *fits == row.begin && dates_ == Dates::waited_for;
    if (together && gap(i).until < gap(row.item).until) return *fits;
    next.begin = next.clock = *fits;
    next.in_begin = std::max(next.in_free, *fits);
    next.in_free = next.date[i] = next.in_begin + model_.in.time(items_[i].bytes);
    next.asked |= Items{1} << i;
    keep(next);
    return *fits;
  }

  /// The last earlier gap of the same value in which it leaves.
  std::optional<std::size_t> sent_before(Items sent, std::size_t i) const {
    std::optional<std::size_t> k = earlier_[i];
    while (k && !holds(sent, *k)) k = earlier_[*k];
    return k;
  }

  bool can_leave(const Row& row, std::size_t i) const {
    if (holds(row.sent, i) || gap(i).made >= row.position || gap(i).until < row.position) return false;
    for (std::size_t k = 0; k < items_.size(); ++k) {  // a later gap's copy stands for this one's too
      for (std::optional<std::size_t> e = earlier_[k]; e && holds(row.sent, k); e = earlier_[*e]) {
        if (*e == i) return false;
      }
    }
    const std::optional<std::size_t> earlier = sent_before(row.sent, i);
    return !earlier || holds(row.asked, *earlier);
  }

  /// As soon as the way is free, and not where it could have been sent before the last decision, or before the copy
  /// that it follows without holding that up.
  void send(const Row& row, std::uint32_t from, std::size_t i, Seconds last) {
    const std::optional<std::size_t> earlier = sent_before(row.sent, i);
    const Seconds made = row.date[earlier.value_or(i)];
    const Seconds begin = std::max(row.out_free, made), time = model_.out.time(items_[i].bytes);
    if (begin < row.begin || begin >= last) return;
    if (std::max(row.idle_from, made) + time <= row.idle_until) return;
    Row next = after(row, from, RowKind::leave, i);
    if (begin > row.out_free) {
      next.idle_from = row.out_free;
      next.idle_until = begin;
    }
    next.out_free = next.date[i] = begin + time;
    next.sent |= Items{1} << i;
    keep(next);
  }

  // --- rows

  /// The least makespan behind it, if what has not been sent yet could leave in pieces of any size, as if made.
  Seconds bound(const Row& row) const {
    Seconds now = std::max(row.clock, row.computed), least = now + rest_[row.position];
    for (std::uint32_t p = row.position; p < model_.positions(); ++p) {
      now = std::max(now, enough_away(row, p, now));
      least = std::max(least, now + rest_[p]);
      now += model_.time[p];
    }
    return least;
  }

  /// From when on as much as memory misses at a position can be away.
  Seconds enough_away(const Row& row, std::uint32_t p, Seconds now) const {
    Bytes missing = model_.memory[p] - budget_, unsent;
    if (missing <= Bytes{0}) return now;
    std::array<std::pair<Seconds, Bytes>, most_items> leaving;
    std::size_t count = 0;
    for (std::size_t i = 0; i < items_.size(); ++i) {
      if (gap(i).from >= p || p >= gap(i).until || holds(row.asked, i)) continue;
      if (!holds(row.sent, i)) {
        unsent += items_[i].bytes;
      } else {
        leaving[count++] = {row.date[i], items_[i].bytes};
      }
    }
    std::sort(leaving.begin(), leaving.begin() + static_cast<std::ptrdiff_t>(count));
    Seconds best = never_copied, date = now;
    for (std::size_t k = 0; k <= count; ++k) {
      if (missing <= Bytes{0}) return std::min(best, date);
      if (missing <= unsent) best = std::min(best, std::max(date, row.out_free + missing / model_.out.bandwidth));
      if (k == count) break;
      date = std::max(date, leaving[k].first);
      missing -= leaving[k].second;
    }
    return best;
  }

  /// Whether whatever follows `b` could follow `a` at the same dates.
  bool no_later(const Row& a, const Row& b) const {
    const auto no_later_than = [&](Seconds x, Seconds y) { return x <= std::max(y, b.clock); };
    if (a.begin > b.begin || !no_later_than(a.clock, b.clock) || !no_later_than(a.computed, b.computed)) return false;
    if (!no_later_than(a.out_free, b.out_free) || !no_later_than(a.in_free, b.in_free)) return false;
    for (std::size_t i = 0; i < items_.size(); ++i) {
      if (gap(i).until >= a.position && !no_later_than(a.date[i], b.date[i])) return false;
    }
    return true;
  }

  void keep(const Row& row) {
    const Seconds least = bound(row);
    if (least >= limit_) return;
    const std::uint64_t sets = (std::uint64_t{row.sent} << most_items) | row.asked;
    std::vector<std::uint32_t>& same = same_[sets * (model_.positions() + 1) + row.position];
    if (std::ranges::any_of(same, [&](std::uint32_t other) { return no_later(rows_[other], row); })) return;
    const auto number = static_cast<std::uint32_t>(rows_.size());
    std::erase_if(same, [&](std::uint32_t other) {
      needless_[other] = no_later(row, rows_[other]);
      return needless_[other];
    });
    same.push_back(number);
    rows_.push_back(row);
    needless_.push_back(false);
    open_.push({least, row.position, number});
    if (row.position < model_.positions()) return;
    limit_ = row.computed;
    best_ = number;
  }

  // --- the tape

  Tape tape(std::uint32_t last) const {
    std::vector<std::uint32_t> decided;
    for (std::uint32_t r = last; r != no_row; r = rows_[r].before) decided.push_back(r);
    std::vector<std::size_t> sent;
    for (const std::uint32_t r : decided) {
      if (rows_[r].kind == RowKind::leave) sent.insert(sent.begin(), rows_[r].item);
    }
    Tape tape;
    std::size_t issued = 0;
    Items waited = 0;
    tape.codecs = model_.codecs;
    const auto tensor = [&](std::size_t i) { return model_.gaps[items_[i].gap].tensor; };
    const auto issue = [&](std::size_t i, Action action) {
      tape.actions.push_back(in_form(model_.gaps[items_[i].gap].form, action));
    };
    for (std::size_t d = decided.size() - 1; d-- > 0;) {
      const Row &row = rows_[decided[d]], &before = rows_[decided[d + 1]];
      if (row.kind == RowKind::leave) continue;
      std::vector<std::size_t> free;
      for (std::size_t i = 0; i < items_.size(); ++i) {
        if (away(before, i) && !holds(waited, i) && free_date(before, i) <= row.begin) free.push_back(i);
      }
      std::ranges::stable_sort(free, {},
                               [&](std::size_t i) { return std::pair(free_date(before, i), before.date[i]); });
      for (const std::size_t i : free) {
        waited |= Items{1} << i;
        issue(i, on_tensor(ActionKind::drop, tensor(i)));
        issue(i, on_copy_at(model_.store, ActionKind::wait, tensor(i)));
      }
      if (row.kind == RowKind::come_back) {
        issue(row.item, along({model_.store, place::device}, ActionKind::move, tensor(row.item)));
      } else {
        tape.actions.push_back(model_.computes[before.position]);
        const std::vector<Action>& drops = model_.drops[before.position];
        tape.actions.insert(tape.actions.end(), drops.begin(), drops.end());
      }
      for (; issued < sent.size() && is_there(row, rows_[last].sent, sent[issued]); ++issued)
        issue(sent[issued], along({place::device, model_.store}, ActionKind::copy, tensor(sent[issued])));
    }
    return tape;
  }

  /// Whether the copy to the host can be issued behind this row, if all those of `sent` leave.
  bool is_there(const Row& row, Items sent, std::size_t i) const {
    const std::optional<std::size_t> earlier = sent_before(sent, i);
    return gap(i).made < row.position && (!earlier || holds(row.asked, *earlier));
  }

  const OffloadModel& model_;
  std::vector<OffloadItem> items_;
  Bytes budget_;
  Dates dates_;
  Seconds limit_;
  std::vector<Seconds> rest_;                                        // by position: the least time from its begin on
  std::array<std::optional<std::size_t>, most_items> earlier_ = {};  // by item
  std::vector<Row> rows_;
  std::vector<bool> needless_;                                          // by row
  std::uint32_t best_ = no_row;                                         // the fastest row at the end
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> same_;  // rows by position, sent and asked
  std::priority_queue<Open> open_;
};

/// Up to 20 items. `enough`: a makespan at which the search may stop. `most_rows` are kept at most.
OffloadSearch search_offloads(const OffloadModel& model, const std::vector<OffloadItem>& items, Bytes budget,
                              Dates dates, Seconds enough, Seconds limit, std::size_t most_rows) {
  return DateSearch(model, items, budget, dates, limit).run(enough, most_rows);
}

struct OffloadExactOptions : OffloadOptions {
  std::int64_t values = 14;
};

constexpr std::size_t rows_of_a_search = 50'000;  // of a search, some milliseconds to a second
constexpr Seconds never{std::numeric_limits<double>::infinity()};

/// The least budget: everything leaves as soon as it may and comes back when it is needed.
Bytes least_memory(const OffloadModel& model, const std::vector<OffloadItem>& items) {
  return select_items(model, items, SelectionRule::first_made).peaks.back();
}

/// The fastest plan, where the search finds one that is faster than `known`, and a bound on what any takes.
TapeOutcome outcome(const PartTask& task, const OffloadModel& model, const std::vector<OffloadItem>& items,
                    std::optional<Bytes> budget, TapeOutcome known) {
  const Bytes limit = budget.value_or(largest_bytes);
  const std::optional<Seconds> fluid = fluid_bound(model, limit);
  PlannedTape* best = std::get_if<PlannedTape>(&known);
  if (!fluid || best == nullptr) return known;
  std::string stopped;
  const bool once = task.problem.micro_batches == 1;
  const Seconds after = updates(task);
  const auto search = [&](Dates dates) {
    const Seconds least = once ? best->makespan - after : never;
    OffloadSearch found = search_offloads(model, items, limit, dates, *fluid, least, rows_of_a_search);
    if (!found.complete) stopped = fmt::format("a search stopped after {} rows", rows_of_a_search);
    return found;
  };
  if (!once || !reaches(best->makespan, *fluid + after)) {
    if (const OffloadSearch found = search(Dates::waited_for); found.tape) {
      const std::optional<PlannedTape> made = simulated_tape(task, model, *found.tape);
      const bool fits = made && made->peak <= limit;
      if (fits && made->makespan < best->makespan) *best = *made;
    }
  }
  Seconds bound = *fluid;
  if (once && !reaches(best->makespan, *fluid + after)) {
    bound = search(Dates::known).bound.value_or(best->makespan - after);
  }
  best->note = stopped;
  if (once) best->gap = relative_gap(best->makespan, bound + after);
  return known;
}

bool too_many(const std::vector<OffloadItem>& items, const OffloadExactOptions& options) {
  return static_cast<std::int64_t>(items.size()) > options.values;
}

/// Whole values, as the search moves them.
Options greedy_options() {
  Options options(offload_greedy_strategy.options);
  options.change<ChunkOptions>().chunks = 1;
  return options;
}

constexpr auto offload_exact_options = options_of<OffloadExactOptions>(
    option_of<&OffloadExactOptions::values>({
        .name = "values",
        .least = 1,
        .most = 20,
        .help = "largest number of values for which the search runs; with more, offload_greedy plans",
    }),
    store_option);

std::vector<TapeOutcome> offload_exact_tapes(const PartTask& task, const OffloadExactOptions& options,
                                             std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  const std::variant<OffloadModel, std::string> made = offload_model(task, before, offload_store(task, options));
  if (const std::string* why = std::get_if<std::string>(&made)) return refused(*why, budgets);
  const auto& model = std::get<OffloadModel>(made);
  const std::vector<OffloadItem> items = model.has_host ? offload_items(model, 1) : std::vector<OffloadItem>{};
  std::vector<TapeOutcome> outcomes = offload_greedy_strategy.tapes(task, greedy_options(), budgets, before);
  if (!model.has_host) return outcomes;
  if (too_many(items, options)) {
    for (TapeOutcome& outcome : outcomes) {
      PlannedTape* tape = std::get_if<PlannedTape>(&outcome);
      if (tape == nullptr) continue;
      tape->note = fmt::format("no search: {} values, more than values={}; the plan is that of offload_greedy",
                               items.size(), options.values);
    }
    return outcomes;
  }
  for (std::size_t b = 0; b < budgets.size(); ++b) {
    outcomes[b] = outcome(task, model, items, budgets[b], std::move(outcomes[b]));
  }
  return outcomes;
}

std::vector<Bytes> offload_exact_candidates(const PartTask& task, const OffloadExactOptions& options) {
  const std::variant<OffloadModel, std::string> made = offload_model(task, nullptr, offload_store(task, options));
  const OffloadModel* model = std::get_if<OffloadModel>(&made);
  if (model == nullptr) return {};
  if (too_many(offload_items(*model, 1), options)) return offload_greedy_strategy.candidates(task, greedy_options());
  const Bends bends = bends_of([&](std::optional<Bytes> budget) {
    return offload_exact_tapes(task, options, std::span(&budget, 1), nullptr).front();
  });
  if (bends.are_all) return bends.budgets;
  constexpr std::uint32_t levels = 40;
  const std::vector<OffloadItem> items = model->has_host ? offload_items(*model, 1) : std::vector<OffloadItem>{};
  const Bytes least = least_memory(*model, items), most = *std::ranges::max_element(model->memory);
  std::vector<Bytes> budgets = budgets_between(least, most, levels);
  budgets.push_back(most);
  std::ranges::copy(bends.budgets, std::back_inserter(budgets));
  return budgets;
}

}  // namespace

extern constinit const StrategyInfo offload_exact_strategy{
    .name = "offload_exact",
    .family = Family::offloading,
    .summary = "the fastest way to offload whole values in any order, on short chains, with a proven gap",
    .source = "own; the problem is Beaumont, Eyraud-Dubois, Shilova's, Euro-Par 2020",
    .options = offload_exact_options,
    .kind = TapeStrategy{.tapes = by_options<offload_exact_tapes>, .candidates = by_options<offload_exact_candidates>},
    .effort = {.stages = 20, .ops = 40, .trials = {.problems = 50, .stride = 7, .stages = 4, .ops = 6}},
};

}  // namespace plimsoll
