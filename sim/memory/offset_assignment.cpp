#include "sim/memory/offset_assignment.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <tuple>

#include "sim/memory/exact_packing.h"

namespace plimsoll {
namespace {

/// An order costs the square of the buffers.
constexpr std::size_t one_order_above = 20'000;

bool is_live_with(const Lifetime& a, const Lifetime& b) {
  return a.begin < b.end && b.begin < a.end;
}

bool takes_room(const Lifetime& l) {
  return l.size > Bytes{0} && l.begin < l.end;
}

struct Placed {
  Bytes offset, end;
  std::uint32_t begin_date, end_date;
};

/// Where the buffer goes among those that are placed, sorted by offset.
Bytes best_gap(const std::vector<Placed>& placed, const Lifetime& l) {
  Bytes top;  // of those that live at the same time, so far
  std::optional<Bytes> best;
  Bytes best_size;
  for (const Placed& p : placed) {
    if (!(p.begin_date < l.end && l.begin < p.end_date)) continue;
    const Bytes gap = p.offset - top;
    if (gap >= l.size && (!best || gap < best_size)) {
      best = top;
      best_size = gap;
    }
    top = std::max(top, p.end);
  }
  return best.value_or(top);
}

OffsetPlan in_order(std::span<const Lifetime> lifetimes, std::span<const std::uint32_t> order) {
  OffsetPlan plan;
  plan.offsets.resize(lifetimes.size());
  std::vector<Placed> placed;
  placed.reserve(order.size());
  for (const std::uint32_t b : order) {
    const Lifetime& l = lifetimes[b];
    const Bytes offset = best_gap(placed, l);
    plan.offsets[b] = offset;
    plan.size = std::max(plan.size, offset + l.size);
    placed.insert(std::ranges::upper_bound(placed, offset, {}, &Placed::offset),
                  {offset, offset + l.size, l.begin, l.end});
  }
  return plan;
}

/// All orders in which buffers may lie, lowest first, each as low as those before it allow: one of them is the order
/// of an optimal plan. Orders that reach the best size so far are cut off.
class Search {
 public:
  Search(std::span<const Lifetime> lifetimes, std::span<const std::uint32_t> buffers, OffsetPlan& best)
      : lifetimes_(lifetimes), left_(buffers.begin(), buffers.end()), offsets_(best.offsets), best_(best) {}

  void run() { place({}, {}); }

 private:
  void place(Bytes lowest, Bytes size) {
    if (best_.size == best_.load) return;
    if (left_.empty()) {
      best_.offsets = offsets_;
      best_.size = size;
      return;
    }
    for (std::size_t i = 0; i < left_.size(); ++i) {
      const std::uint32_t b = left_[i];
      Bytes offset;
      for (const std::uint32_t below : done_) {
        if (is_live_with(lifetimes_[b], lifetimes_[below])) {
          offset = std::max(offset, offsets_[below] + lifetimes_[below].size);
        }
      }
      const Bytes end = std::max(size, offset + lifetimes_[b].size);
      if (offset < lowest || end >= best_.size) continue;
      offsets_[b] = offset;
      left_.erase(left_.begin() + static_cast<std::ptrdiff_t>(i));
      done_.push_back(b);
      place(offset, end);
      done_.pop_back();
      left_.insert(left_.begin() + static_cast<std::ptrdiff_t>(i), b);
    }
  }

  std::span<const Lifetime> lifetimes_;
  std::vector<std::uint32_t> left_, done_;
  std::vector<Bytes> offsets_;
  OffsetPlan& best_;
};

/// Sizes within which there is no plan, or none was found.
struct Missed {
  Bytes size;
  bool is_proven = true;
};

/// Takes a plan within `block`, where one is found.
void take_within(std::span<const Lifetime> lifetimes, std::span<const std::uint32_t> buffers, Bytes block,
                 std::int64_t nodes, OffsetPlan& best, Missed& missed) {
  std::vector<Lifetime> placed;
  for (const std::uint32_t b : buffers) placed.push_back(lifetimes[b]);
  const BlockPacking packing = pack_within(placed, block, nodes);
  if (packing.end != PackingEnd::found) {
    missed = {block, missed.is_proven && packing.end == PackingEnd::impossible};
    return;
  }
  best.size = {};
  for (std::size_t k = 0; k < buffers.size(); ++k) {
    best.offsets[buffers[k]] = packing.offsets[k];
    best.size = std::max(best.size, packing.offsets[k] + placed[k].size);
  }
}

void search_smaller(std::span<const Lifetime> lifetimes, std::span<const std::uint32_t> buffers, std::int64_t nodes,
                    OffsetPlan& best) {
  constexpr std::int64_t close_enough = 512;  // of the distance, where nothing is proven
  Missed missed{best.load - Bytes{1}};
  Bytes block = best.load;
  while (block < best.size) {
    take_within(lifetimes, buffers, block, nodes, best, missed);
    const Bytes apart = best.size - missed.size;
    if (!missed.is_proven && apart.count <= best.size.count / close_enough) return;
    block = missed.size + Bytes{std::max<std::int64_t>(1, apart.count / 2)};
  }
  best.is_optimal = missed.is_proven;
}

}  // namespace

Bytes greatest_load(std::span<const Lifetime> lifetimes) {
  std::vector<std::tuple<std::uint32_t, bool, Bytes>> changes;  // ends before begins
  for (const Lifetime& l : lifetimes) {
    if (!takes_room(l)) continue;
    changes.emplace_back(l.begin, true, l.size);
    changes.emplace_back(l.end, false, l.size);
  }
  std::ranges::sort(changes);
  Bytes live, most;
  for (const auto& [when, begins, size] : changes) {
    begins ? live += size : live -= size;
    most = std::max(most, live);
  }
  return most;
}

OffsetPlan assign_offsets(std::span<const Lifetime> lifetimes, OffsetSearch search) {
  std::vector<std::uint32_t> buffers;
  for (std::uint32_t b = 0; b < lifetimes.size(); ++b) {
    if (takes_room(lifetimes[b])) buffers.push_back(b);
  }
  const auto span_of = [&](std::uint32_t b) { return std::int64_t{lifetimes[b].end} - lifetimes[b].begin; };
  const auto by_size = [&](std::uint32_t b) { return std::tuple(-lifetimes[b].size.count, -span_of(b), b); };
  const auto by_area = [&](std::uint32_t b) {
    const double area = static_cast<double>(lifetimes[b].size.count) * static_cast<double>(span_of(b));
    return std::tuple(-area, -lifetimes[b].size.count, b);
  };
  const auto by_lifetime = [&](std::uint32_t b) { return std::tuple(-span_of(b), -lifetimes[b].size.count, b); };
  const auto by_begin = [&](std::uint32_t b) {
    return std::tuple(std::int64_t{lifetimes[b].begin}, -lifetimes[b].size.count, b);
  };
  OffsetPlan best;
  best.offsets.resize(lifetimes.size());
  const Bytes load = greatest_load(lifetimes);
  bool is_first = true;
  const auto attempt = [&](auto key) {
    if (!is_first && (best.size == load || buffers.size() > one_order_above)) return;
    std::ranges::sort(buffers, {}, key);
    OffsetPlan plan = in_order(lifetimes, buffers);
    if (is_first || plan.size < best.size) best = std::move(plan);
    is_first = false;
  };
  attempt(by_size);
  attempt(by_area);
  attempt(by_lifetime);
  attempt(by_begin);
  best.load = load;
  if (buffers.size() <= exact_offsets_up_to) {
    Search(lifetimes, buffers, best).run();
    best.is_optimal = true;
  } else if (buffers.size() <= search.most_buffers) {
    search_smaller(lifetimes, buffers, search.nodes, best);
  }
  best.is_optimal = best.is_optimal || best.size == load;
  return best;
}

}  // namespace plimsoll
