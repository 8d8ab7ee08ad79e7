#include "strategies/offloading/offload_search.h"

#include <algorithm>
#include <limits>

namespace plimsoll {
namespace {

/// How far one walk has come.
struct State {
  Seconds now, link_back;
  std::vector<Seconds> left, arrived;     ///< by item of the subset: end of the way there, of the way back
  std::vector<std::uint32_t> gone, back;  ///< by item: positions; gone 0 as long as no position has waited for it
  std::size_t asked = 0;                  ///< how many have been asked back

  bool dominates(const State& other) const {
    if (now > other.now || link_back > other.link_back) return false;
    return std::ranges::equal(left, other.left, std::ranges::less_equal{}) &&
           std::ranges::equal(arrived, other.arrived, std::ranges::less_equal{});
  }
};

/// One subset of the items; `items` in the order in which they come back.
class SubsetSearch {
 public:
  SubsetSearch(const OffloadModel& model, std::vector<OffloadItem> items, Bytes budget, Seconds limit)
      : model_(model), items_(std::move(items)), budget_(budget), limit_(limit), rest_(model.positions() + 1) {
    for (std::size_t p = model.positions(); p-- > 0;) rest_[p] = rest_[p + 1] + model.time[p];
    leaving_.resize(items_.size());
    for (std::uint32_t i = 0; i < items_.size(); ++i) leaving_[i] = i;
    std::ranges::stable_sort(leaving_, {}, [&](std::uint32_t i) { return gap(i).made; });
  }

  /// The best of its walks, if it is faster than the limit.
  std::optional<BestMoves> run() {
    State start;
    start.left.resize(items_.size());
    start.arrived.resize(items_.size());
    start.gone.resize(items_.size(), 0);
    start.back.resize(items_.size(), 0);
    std::vector<State> states{start};
    for (std::uint32_t p = 0; p < model_.positions(); ++p) {
      std::vector<State> next;
      for (const State& state : states) {
        for (std::size_t asked = state.asked; asked <= items_.size() && may_ask(state, asked, p); ++asked) {
          if (std::optional<State> after = step(state, asked, p)) keep(next, std::move(*after));
        }
      }
      states = std::move(next);
    }
    const auto best = std::ranges::min_element(states, {}, &State::now);
    if (best == states.end()) return std::nullopt;
    BestMoves found{{}, best->now};
    for (const std::uint32_t i : leaving_) {
      found.moves.push_back({items_[i], gap(i).made, best->gone[i], best->back[i], {}, {}});
    }
    std::erase_if(found.moves, [](const OffloadMove& move) { return move.gone == 0; });
    return found;
  }

 private:
  const OffloadGap& gap(std::uint32_t i) const { return model_.gaps[items_[i].gap]; }

  /// The last one asked for must be in its gap, after it could leave.
  bool may_ask(const State& state, std::size_t asked, std::uint32_t p) const {
    return asked == state.asked || gap(static_cast<std::uint32_t>(asked - 1)).from < p;
  }

  static void keep(std::vector<State>& states, State made) {
    const auto same = [&](const State& s) { return s.asked == made.asked; };
    if (std::ranges::any_of(states, [&](const State& s) { return same(s) && s.dominates(made); })) return;
    std::erase_if(states, [&](const State& s) { return same(s) && made.dominates(s); });
    states.push_back(std::move(made));
  }

  /// Position p after asking back up to `asked`; nothing where memory is short, a value is missing or time is up.
  std::optional<State> step(State state, std::size_t asked, std::uint32_t p) const {
    for (std::size_t i = state.asked; i < asked; ++i) state.back[i] = p;
    for (std::size_t i = asked; i < items_.size(); ++i) {
      if (gap(static_cast<std::uint32_t>(i)).until <= p) return std::nullopt;
    }
    Bytes needed = model_.memory[p];
    for (const std::uint32_t i : leaving_) {  // what has left stays away for nothing
      if (i < asked || gap(i).from >= p) continue;
      if (state.gone[i] == 0 && state.left[i] > state.now) continue;
      if (state.gone[i] == 0) state.gone[i] = p;
      needed -= items_[i].bytes;
    }
    for (const std::uint32_t i : leaving_) {
      if (needed <= budget_) break;
      if (i < asked || gap(i).from >= p || state.gone[i] > 0) continue;
      state.now = std::max(state.now, state.left[i]);
      state.gone[i] = p;
      needed -= items_[i].bytes;
    }
    if (needed > budget_) return std::nullopt;
    for (std::size_t i = state.asked; i < asked; ++i) {
      if (state.gone[i] == 0) return std::nullopt;  // it has never been away: another subset
      state.link_back = std::max(state.now, state.link_back) + model_.in.time(items_[i].bytes);
      state.arrived[i] = state.link_back;
    }
    state.asked = asked;
    for (std::uint32_t i = 0; i < items_.size(); ++i) {
      if (gap(i).until == p) state.now = std::max(state.now, state.arrived[i]);
    }
    state.now += model_.time[p];
    if (state.now + rest_[p + 1] >= limit_) return std::nullopt;
    Seconds busy;
    for (const std::uint32_t i : leaving_) {
      if (gap(i).made < p) busy = std::max(busy, state.left[i]);
      if (gap(i).made == p) busy = state.left[i] = std::max(busy, state.now) + model_.out.time(items_[i].bytes);
    }
    return state;
  }

  const OffloadModel& model_;
  std::vector<OffloadItem> items_;
  Bytes budget_;
  Seconds limit_;
  std::vector<Seconds> rest_;           // by position: of the computes from there on
  std::vector<std::uint32_t> leaving_;  // items as they leave
};

/// Whether the subset can be enough at all.
bool may_suffice(const OffloadModel& model, const std::vector<OffloadItem>& items, Bytes budget) {
  std::vector<Bytes> needed = model.memory;
  for (const OffloadItem& item : items) {
    for (std::uint32_t p = model.gaps[item.gap].from + 1; p < model.gaps[item.gap].until; ++p) needed[p] -= item.bytes;
  }
  return std::ranges::all_of(needed, [&](Bytes bytes) { return bytes <= budget; });
}

}  // namespace

std::optional<BestMoves> best_moves(const OffloadModel& model, const std::vector<OffloadItem>& items, Bytes budget,
                                    Seconds enough) {
  std::vector<OffloadItem> sorted = items;
  std::ranges::stable_sort(sorted, {}, [&](const OffloadItem& item) { return model.gaps[item.gap].until; });
  std::optional<BestMoves> best;
  Seconds limit{std::numeric_limits<double>::infinity()};
  for (std::uint64_t subset = 0; subset < std::uint64_t{1} << sorted.size(); ++subset) {
    std::vector<OffloadItem> chosen;
    for (std::size_t i = 0; i < sorted.size(); ++i) {
      if ((subset >> i) & 1U) chosen.push_back(sorted[i]);
    }
    if (!may_suffice(model, chosen, budget)) continue;
    if (std::optional<BestMoves> made = SubsetSearch(model, std::move(chosen), budget, limit).run()) {
      limit = made->makespan;
      best = std::move(made);
      if (limit <= (1 + 1e-12) * enough) break;
    }
  }
  return best;
}

}  // namespace plimsoll
