#include "strategies/offloading/activations/offload_moves.h"

#include <algorithm>
#include <deque>
#include <numeric>

#include "sim/core/expects.h"
#include "sim/engine/event/event_engine.h"
#include "sim/io/input_error.h"
#include "sim/lower/lowering.h"

namespace plimsoll {
namespace {

/// Items by number, bucketed by a position.
using Buckets = std::vector<std::vector<std::uint32_t>>;

class Placer {
 public:
  Placer(const OffloadModel& model, std::span<const OffloadItem> items, Bytes budget,
         std::span<const std::uint32_t> wanted)
      : model_(model), items_(items), budget_(budget), wanted_(wanted), back_(items.size()), gone_(items.size(), 0) {
    std::vector<bool> moved(model.gaps.size(), false);
    for (const OffloadItem& item : items) moved[item.gap] = true;
    for (const OffloadItem& item : items) issue_.push_back(leaves_after(model, item.gap, moved));
    placement_.late.resize(items.size());
    for (std::uint32_t i = 0; i < items.size(); ++i) back_[i] = gap(i).from + 1;
  }

  std::optional<PlacedCopies> run() && {
    if (!walk_backwards() || !walk_forwards()) return std::nullopt;
    for (const std::uint32_t i : order_) {
      if (gone_[i] == 0 || gone_[i] >= back_[i]) continue;
      placement_.moves.push_back(
          {.item = items_[i], .issue = issue_[i], .gone = gone_[i], .back = back_[i], .copied = {}, .arrived = {}});
    }
    return std::move(placement_);
  }

 private:
  struct Copying {
    std::uint32_t item = 0;
    Seconds end;
  };

  const OffloadGap& gap(std::uint32_t item) const { return model_.gaps[items_[item].gap]; }

  template <class Position>
  Buckets by(Position position) const {
    Buckets buckets(model_.positions());
    for (std::uint32_t i = 0; i < items_.size(); ++i) buckets[position(i)].push_back(i);
    return buckets;
  }

  /// Finds back_. An item that has "left" by the time the walk gets to p is absent there.
  bool walk_backwards() {
    const Buckets until = by([&](std::uint32_t i) { return gap(i).until; });
    const Buckets from = by([&](std::uint32_t i) { return gap(i).from; });
    std::deque<Copying> copying;
    Seconds now, free;
    Bytes absent;
    for (auto p = static_cast<std::uint32_t>(model_.positions()); p-- > 0;) {
      for (const std::uint32_t i : from[p]) {
        if (back_[i] > p + 1) absent -= items_[i].bytes;
      }
      const auto leave = [&] {
        const auto [i, end] = copying.front();
        copying.pop_front();
        if (wanted_.empty()) now = std::max(now, end);
        if (gap(i).from >= p) return;
        back_[i] = p + 1;
        absent += items_[i].bytes;
      };
      const auto has_left = [&](const Copying& c) { return wanted_.empty() ? c.end <= now : wanted_[c.item] > p; };
      while (!copying.empty() && has_left(copying.front())) leave();
      while (model_.memory[p] - absent > budget_) {
        if (copying.empty()) return false;
        leave();
      }
      now += model_.time[p];
      for (std::size_t k = until[p].size(); k-- > 0;) {
        const std::uint32_t i = until[p][k];
        free = std::max(now, free) + model_.in.time(items_[i].bytes);
        copying.push_back({i, free});
      }
    }
    return true;
  }

  /// Finds gone_ and the makespan.
  bool walk_forwards() {
    const Buckets leaving = by([&](std::uint32_t i) { return issue_[i]; });
    const Buckets until = by([&](std::uint32_t i) { return gap(i).until; });
    Buckets back(model_.positions() + 1);
    for (const std::vector<std::uint32_t>& together : until) {
      for (const std::uint32_t i : together) back[back_[i]].push_back(i);
    }
    std::vector<Copying> copying;
    std::vector<Seconds> arrival(items_.size());
    Seconds now, out_free, in_free;
    Bytes absent;
    for (std::uint32_t p = 0; p < model_.positions(); ++p) {
      const auto may_leave = [&](const Copying& c) { return gap(c.item).from < p && back_[c.item] > p; };
      const auto leave = [&](const Copying& c) {
        now = std::max(now, c.end);
        gone_[c.item] = p;
        absent += items_[c.item].bytes;
      };
      for (const std::uint32_t i : back[p]) {
        if (gone_[i] > 0) absent -= items_[i].bytes;
      }
      std::erase_if(copying, [&](const Copying& c) {
        if (back_[c.item] <= p) return true;
        if (c.end > now || !may_leave(c)) return false;
        leave(c);
        return true;
      });
      while (model_.memory[p] - absent > budget_) {
        const auto first = std::ranges::find_if(copying, may_leave);
        if (first == copying.end()) return false;
        leave(*first);
        copying.erase(first);
      }
      for (const std::uint32_t i : back[p]) {
        if (gone_[i] == 0) continue;
        in_free = std::max(now, in_free) + model_.in.time(items_[i].bytes);
        arrival[i] = in_free;
      }
      for (const std::uint32_t i : until[p]) placement_.late[i] = std::max(Seconds{}, arrival[i] - now);
      for (const std::uint32_t i : until[p]) now = std::max(now, arrival[i]);
      now += model_.time[p];
      for (const std::uint32_t i : leaving[p]) {
        if (back_[i] <= gap(i).from + 1) continue;
        out_free = std::max(now, out_free) + model_.out.time(items_[i].bytes);
        copying.push_back({i, out_free});
        order_.push_back(i);
      }
    }
    placement_.makespan = now;
    return true;
  }

  const OffloadModel& model_;
  std::span<const OffloadItem> items_;
  Bytes budget_;
  std::span<const std::uint32_t> wanted_;
  std::vector<std::uint32_t> issue_;        // by item: the position after which it may leave
  std::vector<std::uint32_t> back_, gone_;  // by item; gone 0: it stays
  std::vector<std::uint32_t> order_;        // items as they leave
  PlacedCopies placement_;
};

}  // namespace

OffloadItem chunk_of(const OffloadModel& model, std::uint32_t gap, Chunk chunk) {
  const Bytes bytes = model.gaps[gap].bytes, value = model.gaps[gap].value_bytes;
  const ChunkRange range = range_of(value, chunk);
  return {gap, chunk, packed_share(bytes, value, range.offset, range.length)};
}

std::vector<OffloadItem> offload_items(const OffloadModel& model, std::uint32_t chunks) {
  std::vector<OffloadItem> items;
  for (std::uint32_t g = 0; g < model.gaps.size(); ++g) {
    if (!model.gaps[g].holds_positions()) continue;
    const std::uint32_t count = model.gaps[g].bytes.count >= chunks ? chunks : 1;
    for (std::uint32_t c = 0; c < count; ++c) items.push_back(chunk_of(model, g, {c, count}));
  }
  return items;
}

Tape offload_tape(const OffloadModel& model, std::span<const OffloadMove> moves) {
  std::vector<std::vector<Action>> before(model.positions()), prefetches = before, after = before;
  const Way out{place::device, model.store}, back{model.store, place::device};
  const auto travels = [&](Way way, ActionKind kind, const OffloadMove& move) {
    const OffloadGap& gap = model.gaps[move.item.gap];
    return in_form(gap.form, along(way, kind, gap.tensor, move.item.chunk));
  };
  const auto stays = [&](MemoryId at, ActionKind kind, const OffloadMove& move) {
    const OffloadGap& gap = model.gaps[move.item.gap];
    return in_form(gap.form, on_copy_at(at, kind, gap.tensor, move.item.chunk));
  };
  std::vector<OffloadMove> returning(moves.begin(), moves.end());
  std::ranges::stable_sort(returning, {}, [&](const OffloadMove& move) { return model.gaps[move.item.gap].until; });
  for (const OffloadMove& move : moves) {
    const OffloadGap& gap = model.gaps[move.item.gap];
    EXPECTS(gap.made <= move.issue && move.issue < move.gone && gap.from < move.gone);
    EXPECTS(move.gone <= move.back && move.back <= gap.until);
    after[move.issue].push_back(travels(out, ActionKind::copy, move));
    before[move.gone].push_back(stays(model.store, ActionKind::wait, move));
    if (move.copied) before[*move.copied].push_back(stays(model.store, ActionKind::wait, move));
  }
  for (const OffloadMove& move : moves) {
    const OffloadGap& gap = model.gaps[move.item.gap];
    after[std::max(gap.from, move.issue)].push_back(stays(place::device, ActionKind::drop, move));
  }
  for (const OffloadMove& move : returning) prefetches[move.back].push_back(travels(back, ActionKind::move, move));
  for (const OffloadMove& move : returning) {
    if (move.arrived) prefetches[*move.arrived].push_back(stays(place::device, ActionKind::wait, move));
  }
  Tape tape;
  tape.codecs = model.codecs;
  for (std::size_t p = 0; p < model.positions(); ++p) {
    for (const auto* actions : {&before[p], &prefetches[p]}) {
      tape.actions.insert(tape.actions.end(), actions->begin(), actions->end());
    }
    tape.actions.push_back(model.computes[p]);
    tape.actions.insert(tape.actions.end(), after[p].begin(), after[p].end());
    tape.actions.insert(tape.actions.end(), model.drops[p].begin(), model.drops[p].end());
  }
  return tape;
}

std::optional<PlannedTape> planned_moves(const PartTask& task, const OffloadModel& model,
                                         std::span<const OffloadMove> moves) {
  return simulated_tape(task, model, offload_tape(model, moves));
}

std::optional<PlannedTape> simulated_tape(const PartTask& task, const OffloadModel& model, Tape tape) {
  PlannedTape planned{std::move(tape), {}, {}, std::nullopt};
  const std::variant<Schedule, std::string> made = lower(task.problem, task.partition, std::span(&planned.tape, 1));
  if (const std::string* why = std::get_if<std::string>(&made)) throw InputError(*why);
  const Timeline timeline = simulate_event(std::get<Schedule>(made), task.problem.platform);
  const DeviceId device = task.part().device;
  planned.peak = timeline.peaks[task.problem.platform[device].memory.index].bytes;
  planned.makespan = timeline.makespan;
  const std::optional<MemoryId> host = memory_at(task.problem.platform, device, model.store);
  if (host && timeline.peaks[host->index].bytes > model.host_capacity) return std::nullopt;
  return planned;
}

std::optional<PlacedCopies> placed_items(const OffloadModel& model, std::span<const OffloadItem> items, Bytes budget,
                                         std::span<const std::uint32_t> wanted) {
  return Placer(model, items, budget, wanted).run();
}

}  // namespace plimsoll
