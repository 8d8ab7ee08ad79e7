#include "strategies/pipelining/orders/v_slots.h"

#include <algorithm>
#include <span>

#include "sim/core/expects.h"
#include "strategies/pipelining/orders/v_shape_search.h"

namespace plimsoll {
namespace {

/// What a rank does for a micro-batch: the four passes of a block, then W of the second part and of the first.
enum SlotKind : std::size_t { f_first, f_second, b_second, b_first, w_second, w_first };

/// One of a rank's.
struct SlotPass {
  std::uint32_t begin = 0, rank = 0;
  SlotKind kind = f_first;
  std::uint32_t micro_batch = 0;

  friend auto operator<=>(const SlotPass&, const SlotPass&) = default;
};

bool is_slot_forward(SlotKind kind) {
  return kind < b_second;
}
bool is_slot_weights(SlotKind kind) {
  return kind > b_first;
}

class VSlots {
 public:
  VSlots(const VBlock& block, std::uint32_t m)
      : p_(static_cast<std::uint32_t>(block.begin.size())), m_(m), whole_(block.has_whole_backwards) {
    begin_.resize(std::size_t{p_} * kinds() * m);
    for (std::uint32_t r = 0; r < p_; ++r) {
      for (const SlotKind kind : {f_first, f_second, b_second, b_first}) {
        for (std::uint32_t i = 0; i < m; ++i) at(r, kind, i) = block.begin[r][kind] + 6 * i;
      }
    }
    if (!whole_) put_weights(std::vector<std::uint32_t>(p_, 0));
  }

  std::uint32_t parts_kept() const {
    std::uint32_t most = 0;
    for (std::uint32_t r = 0; r < p_; ++r) most = std::max(most, std::ranges::max(kept(r)));
    return most;
  }

  /// Moves what can to the first free slot after what it reads, while no rank keeps more, until nothing moves.
  void tighten(std::uint32_t parts) {
    squeeze();
    for (int round = 0; round < 6 && move_forward(parts); ++round) squeeze();
  }

  /// Moves every pass to the first free slot after what it reads, while no rank keeps more. `into_its_own`: also where
  /// the slots are in part those that it has.
  bool move_forward(std::uint32_t parts, bool into_its_own = true) {
    std::vector<std::vector<bool>> taken = slots_taken();
    std::vector<std::vector<std::uint32_t>> kept_now;
    for (std::uint32_t r = 0; r < p_; ++r) kept_now.push_back(kept(r));
    bool any = false;
    for (const SlotPass& pass : sorted()) {
      std::vector<bool>& busy = taken[pass.rank];
      std::vector<std::uint32_t>& keeps = kept_now[pass.rank];
      const std::uint32_t slots = length(pass.kind);
      std::uint32_t first = readable(pass.rank, pass.kind, pass.micro_batch);
      if (is_slot_forward(pass.kind)) {  // kept for longer
        std::uint32_t least = pass.begin;
        while (least > first && keeps[least - 1] < parts) --least;
        first = least;
      }
      if (into_its_own) occupy(busy, pass.begin, slots, false);
      while (first < pass.begin && !is_free(busy, first, slots)) ++first;
      occupy(busy, pass.begin, slots, false);
      occupy(busy, first, slots, true);
      if (first == pass.begin) continue;
      any = true;
      at(pass.rank, pass.kind, pass.micro_batch) = first;
      if (is_slot_forward(pass.kind)) {
        for (std::uint32_t s = first; s < pass.begin; ++s) ++keeps[s];
      } else if (ends_a_part(pass.kind)) {
        for (std::uint32_t s = first + slots; s < pass.begin + slots; ++s) --keeps[s];
      }
    }
    return any;
  }

  /// Moves every pass to the last free slot before what reads it, while no rank keeps more: what could come later makes
  /// room for what could come sooner.
  void move_back(std::uint32_t parts) {
    const std::uint32_t end = slots();
    std::vector<std::vector<bool>> taken = slots_taken();
    std::vector<std::vector<std::uint32_t>> kept_now;
    for (std::uint32_t r = 0; r < p_; ++r) kept_now.push_back(kept(r));
    const std::vector<SlotPass> passes = sorted();
    for (auto pass = passes.rbegin(); pass != passes.rend(); ++pass) {
      std::vector<bool>& busy = taken[pass->rank];
      std::vector<std::uint32_t>& keeps = kept_now[pass->rank];
      const std::uint32_t slots = length(pass->kind);
      std::uint32_t last = read_at(pass->rank, pass->kind, pass->micro_batch, end) - slots;
      const bool frees = ends_a_part(pass->kind);
      if (frees) {  // kept for longer
        std::uint32_t most = pass->begin;
        while (most < last && keeps[most + slots] < parts) ++most;
        last = most;
      }
      occupy(busy, pass->begin, slots, false);
      while (last > pass->begin && !is_free(busy, last, slots)) --last;
      occupy(busy, last, slots, true);
      at(pass->rank, pass->kind, pass->micro_batch) = last;
      for (std::uint32_t s = pass->begin; s < last; ++s) {
        if (is_slot_forward(pass->kind)) --keeps[s];
        if (frees) ++keeps[s + slots];
      }
    }
  }

  /// After a rank's last forward: all backwards first, W into what is left free.
  void backwards_first() {
    std::vector<std::uint32_t> from(p_, 0);
    for (std::uint32_t r = 0; r < p_; ++r) {
      for (std::uint32_t i = 0; i < m_; ++i) from[r] = std::max({from[r], at(r, f_first, i), at(r, f_second, i)});
    }
    std::vector<std::vector<bool>> taken = slots_taken();
    for (const SlotPass& pass : sorted()) {
      if (is_slot_weights(pass.kind) && pass.begin > from[pass.rank]) taken[pass.rank][pass.begin] = false;
    }
    for (const SlotPass& pass : sorted()) {
      if (is_slot_weights(pass.kind) || pass.begin <= from[pass.rank]) continue;
      std::uint32_t slot = readable(pass.rank, pass.kind, pass.micro_batch);
      while (slot < pass.begin && taken[pass.rank][slot]) ++slot;
      taken[pass.rank][pass.begin] = false;
      taken[pass.rank][slot] = true;
      at(pass.rank, pass.kind, pass.micro_batch) = slot;
    }
    put_weights(from);
    squeeze();
  }

  PipelineOrder order() const {
    PipelineOrder order{v_shape(p_), std::vector<std::vector<Turn>>(p_), !whole_};
    for (const SlotPass& pass : sorted()) {
      const bool first = pass.kind == f_first || pass.kind == b_first || pass.kind == w_first;
      const std::uint32_t kind = is_slot_forward(pass.kind)   ? piece::forward
                                 : is_slot_weights(pass.kind) ? piece::weights
                                                              : piece::backward;
      order.turns[pass.rank].push_back({PartId{first ? pass.rank : 2 * p_ - 1 - pass.rank}, pass.micro_batch, kind});
    }
    return order;
  }

 private:
  std::size_t kinds() const { return whole_ ? 4 : 6; }
  std::uint32_t length(SlotKind kind) const { return whole_ && !is_slot_forward(kind) ? 2 : 1; }
  std::uint32_t& at(std::uint32_t r, SlotKind kind, std::uint32_t i) { return begin_[(r * kinds() + kind) * m_ + i]; }
  std::uint32_t at(std::uint32_t r, SlotKind kind, std::uint32_t i) const {
    return begin_[(r * kinds() + kind) * m_ + i];
  }
  std::uint32_t end(std::uint32_t r, SlotKind kind, std::uint32_t i) const { return at(r, kind, i) + length(kind); }

  /// The first slot in which all has been made that the pass reads.
  std::uint32_t readable(std::uint32_t r, SlotKind kind, std::uint32_t i) const {
    switch (kind) {
      case f_first:
        return r == 0 ? 0 : end(r - 1, f_first, i);
      case f_second:
        return r == p_ - 1 ? end(r, f_first, i) : end(r + 1, f_second, i);
      case b_second:
        return r == 0 ? end(r, f_second, i) : std::max(end(r - 1, b_second, i), end(r, f_second, i));
      case b_first:
        return r == p_ - 1 ? end(r, b_second, i) : std::max(end(r + 1, b_first, i), end(r, f_first, i));
      case w_second:
        return end(r, b_second, i);
      case w_first:
        return end(r, b_first, i);
    }
    EXPECTS(false);
  }

  /// The slot in which what the pass makes is read first; `end` where nobody does.
  std::uint32_t read_at(std::uint32_t r, SlotKind kind, std::uint32_t i, std::uint32_t end) const {
    const auto weights = [&](SlotKind of) { return whole_ ? end : at(r, of, i); };
    switch (kind) {
      case f_first:
        return std::min(r == p_ - 1 ? at(r, f_second, i) : at(r + 1, f_first, i), at(r, b_first, i));
      case f_second:
        return std::min(r == 0 ? at(r, b_second, i) : at(r - 1, f_second, i), at(r, b_second, i));
      case b_second:
        return std::min(r == p_ - 1 ? at(r, b_first, i) : at(r + 1, b_second, i), weights(w_second));
      case b_first:
        return std::min(r == 0 ? end : at(r - 1, b_first, i), weights(w_first));
      case w_second:
      case w_first:
        return end;
    }
    EXPECTS(false);
  }

  bool ends_a_part(SlotKind kind) const { return whole_ ? !is_slot_forward(kind) : is_slot_weights(kind); }

  static void occupy(std::vector<bool>& busy, std::uint32_t from, std::uint32_t slots, bool with) {
    for (std::uint32_t s = from; s < from + slots; ++s) busy[s] = with;
  }
  static bool is_free(const std::vector<bool>& busy, std::uint32_t from, std::uint32_t slots) {
    return !busy[from] && !busy[from + slots - 1];
  }

  std::vector<SlotPass> sorted() const { return sorted(0, p_); }

  /// Of ranks [first, last): by slot, those of one by rank, kind and micro-batch.
  std::vector<SlotPass> sorted(std::uint32_t first, std::uint32_t last) const {
    const std::size_t of_rank = kinds() * m_;
    const std::span begins = std::span(begin_).subspan(first * of_rank, (last - first) * of_rank);
    std::vector<std::size_t> place(slots() + 1, 0);  // by slot, where its next pass goes
    for (const std::uint32_t begin : begins) ++place[begin + 1];
    for (std::size_t s = 1; s < place.size(); ++s) place[s] += place[s - 1];
    std::vector<SlotPass> passes(begins.size());
    for (std::uint32_t r = first; r < last; ++r) {
      for (std::size_t kind = 0; kind < kinds(); ++kind) {
        for (std::uint32_t i = 0; i < m_; ++i) {
          const std::uint32_t begin = at(r, SlotKind(kind), i);
          passes[place[begin]++] = {begin, r, SlotKind(kind), i};
        }
      }
    }
    return passes;
  }

  std::uint32_t slots() const { return std::ranges::max(begin_) + 2; }

  std::vector<std::vector<bool>> slots_taken() const {
    std::vector<std::vector<bool>> taken(p_, std::vector<bool>(slots()));
    for (std::uint32_t r = 0; r < p_; ++r) {
      for (std::size_t kind = 0; kind < kinds(); ++kind) {
        for (std::uint32_t i = 0; i < m_; ++i) {
          for (std::uint32_t s = at(r, SlotKind(kind), i); s < end(r, SlotKind(kind), i); ++s) taken[r][s] = true;
        }
      }
    }
    return taken;
  }

  /// W whose backward, or which itself, is from slot `from` of its rank on: in the order of the backwards.
  void put_weights(const std::vector<std::uint32_t>& from) {
    for (std::uint32_t r = 0; r < p_; ++r) {
      std::vector<SlotPass> made, backwards;
      for (const SlotPass& pass : sorted(r, r + 1)) {
        const bool moves = is_slot_weights(pass.kind) && (from[r] == 0 || pass.begin > from[r]);
        if (!moves) made.push_back(pass);
        if (moves) backwards.push_back({0, r, SlotKind(pass.kind - 2), pass.micro_batch});
      }
      std::vector<bool> taken(slots() + begin_.size(), false);
      for (const SlotPass& pass : made) taken[pass.begin] = true;
      for (SlotPass& pass : backwards) pass.begin = at(r, pass.kind, pass.micro_batch);
      std::ranges::sort(backwards);
      for (const SlotPass& pass : backwards) {
        std::uint32_t slot = std::max(pass.begin + 1, from[r]);
        while (taken[slot]) ++slot;
        taken[slot] = true;
        at(r, SlotKind(pass.kind + 2), pass.micro_batch) = slot;
      }
    }
  }

  /// By slot: parts whose forward has begun and whose last pass has not ended.
  std::vector<std::uint32_t> kept(std::uint32_t r) const {
    std::vector<std::uint32_t> kept(slots() + 1, 0), left(kept.size(), 0);
    for (std::uint32_t i = 0; i < m_; ++i) {
      for (const SlotKind kind : {f_first, f_second}) {
        ++kept[at(r, kind, i)];
        ++left[end(r, whole_ ? SlotKind(3 - kind) : SlotKind(5 - kind), i)];
      }
    }
    for (std::size_t s = 1; s < kept.size(); ++s) kept[s] += kept[s - 1] - left[s];
    return kept;
  }

  /// Every pass as soon as its rank is free and what it reads has been made, in each rank's order.
  void squeeze() {
    std::vector<std::vector<SlotPass>> turns(p_);
    for (const SlotPass& pass : sorted()) turns[pass.rank].push_back(pass);
    std::vector<std::uint32_t> now(p_, 0);
    std::vector<std::size_t> next(p_, 0);
    std::ranges::fill(begin_, not_yet);
    for (bool any = true; any;) {
      any = false;
      for (std::uint32_t r = 0; r < p_; ++r) {
        for (; next[r] < turns[r].size(); ++next[r], any = true) {
          const SlotPass& pass = turns[r][next[r]];
          const std::uint32_t from = readable(r, pass.kind, pass.micro_batch);
          if (from >= not_yet) break;
          at(r, pass.kind, pass.micro_batch) = std::max(from, now[r]);
          now[r] = end(r, pass.kind, pass.micro_batch);
        }
      }
    }
    EXPECTS(std::ranges::max(begin_) < not_yet);
  }

  static constexpr std::uint32_t not_yet = 1U << 30U;

  std::uint32_t p_, m_;
  bool whole_;
  std::vector<std::uint32_t> begin_;  // by rank, kind and micro-batch
};

}  // namespace

std::uint32_t parts_kept(const VBlock& block, std::uint32_t micro_batches) {
  return VSlots(block, micro_batches).parts_kept();
}

std::vector<PipelineOrder> orders_of(const VBlock& block, std::uint32_t micro_batches, std::uint32_t parts) {
  VSlots slots(block, micro_batches);
  VSlots once = slots;
  slots.tighten(parts);
  std::vector<PipelineOrder> orders{slots.order()};
  VSlots later = slots;
  later.move_back(parts);
  later.tighten(parts);
  orders.push_back(later.order());
  if (block.has_whole_backwards) {  // as the published program
    once.move_forward(parts, false);
    orders.push_back(once.order());
    return orders;
  }
  slots.backwards_first();
  slots.tighten(parts);
  orders.push_back(slots.order());
  return orders;
}

}  // namespace plimsoll
