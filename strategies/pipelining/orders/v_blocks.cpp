// The building blocks of v_slots.h, and the published program's order of them.

#include <algorithm>
#include <array>
#include <limits>
#include <set>

#include "strategies/pipelining/orders/v_shape_search.h"
#include "strategies/pipelining/orders/v_slots.h"

namespace plimsoll {
namespace {

constexpr std::uint32_t block_period = 6;

/// The first slot from `slot` on that is `residue` in its period.
std::uint32_t first_slot_from(std::uint32_t slot, std::uint32_t residue) {
  return slot + (residue + block_period - slot % block_period) % block_period;
}

/// The block with these slots of each rank within the period, each as soon as what it reads has been made.
VBlock v_block_of(const std::vector<VBlock::Slots>& residues, bool has_whole_backwards) {
  const std::size_t p = residues.size();
  const std::uint32_t back = has_whole_backwards ? 2 : 1;  // slots of a B
  VBlock block{std::vector<VBlock::Slots>(p), has_whole_backwards};
  std::uint32_t slot = 0;
  for (std::size_t pass = 0; pass < 4; ++pass) {
    for (std::size_t k = 0; k < p; ++k) {
      const std::size_t r = pass % 2 == 0 ? k : p - 1 - k;
      slot = first_slot_from(slot, residues[r][pass]);
      block.begin[r][pass] = slot;
      slot += pass < 2 ? 1 : back;
    }
  }
  return block;
}

/// The ways in which two F of a slot and two B of two slots fill the period.
std::vector<VBlock::Slots> whole_residues() {
  std::vector<VBlock::Slots> all;
  for (std::uint32_t at = 0; at < block_period * block_period * block_period * block_period; ++at) {
    const VBlock::Slots r{at % block_period, at / block_period % block_period,
                          at / block_period / block_period % block_period,
                          at / block_period / block_period / block_period};
    const std::set<std::uint32_t> taken{r[0], r[1], r[2], (r[2] + 1) % block_period, r[3], (r[3] + 1) % block_period};
    if (taken.size() == block_period) all.push_back(r);
  }
  return all;
}

/// From a pass of `slots` slots at `from` to one at `to`, of the same period or a later one.
std::uint32_t slots_from(std::uint32_t from, std::uint32_t to, std::uint32_t slots) {
  return first_slot_from(from + slots, to) - from;
}

/// Of the four passes from one rank to the next.
std::uint32_t slots_to_next(const VBlock::Slots& r, const VBlock::Slots& next) {
  return slots_from(r[0], next[0], 1) + slots_from(next[1], r[1], 1) + slots_from(r[2], next[2], 2) +
         slots_from(next[3], r[3], 2);
}

/// The order of the published program, in slots of its own: it moves passes before the first rank has ended a part and
/// after it has begun its last one, with W in the first free slots, and after that once more as if W took none. W fill
/// what is left free in the end, those of the second part first.
class PublishedSlots {
 public:
  PublishedSlots(const VBlock& block, std::uint32_t m) : m_(m), ranks_(block.begin.size()) {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      for (const std::size_t kind : {down, up, back_down, back_up}) {
        for (std::uint32_t i = 0; i < m; ++i) ranks_[r][kind].push_back(block.begin[r][kind] + 6 * i);
      }
    }
  }

  PipelineOrder order() {
    for (const bool with_weights : {true, false}) {
      if (with_weights) std::ranges::for_each(ranks_, put_weights);
      move_ends(with_weights);
      if (!with_weights) std::ranges::for_each(ranks_, put_weights);
      squeeze();
      for (Rank& rank : ranks_) rank[weights].clear();
    }
    PipelineOrder order{v_shape(static_cast<std::uint32_t>(ranks_.size())), {}, true};
    for (std::uint32_t r = 0; r < ranks_.size(); ++r) order.turns.push_back(turns_of(r));
    return order;
  }

 private:
  static constexpr std::size_t down = 0, up = 1, back_down = 2, back_up = 3, weights = 4;  // W of both parts
  using Rank = std::array<std::vector<std::uint32_t>, 5>;  // slots by kind and micro-batch, of W in their order
  struct PublishedPass {
    std::uint32_t slot, rank;
    std::size_t kind;
    std::uint32_t index;

    friend auto operator<=>(const PublishedPass&, const PublishedPass&) = default;
  };

  std::vector<PublishedPass> sorted() const {
    std::vector<PublishedPass> passes;
    for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
      for (std::size_t kind = 0; kind < ranks_[r].size(); ++kind) {
        for (std::uint32_t i = 0; i < ranks_[r][kind].size(); ++i) passes.push_back({ranks_[r][kind][i], r, kind, i});
      }
    }
    std::ranges::sort(passes);
    return passes;
  }

  static std::vector<bool> slots_taken(const Rank& rank) {
    std::uint32_t last = 0;
    for (const std::vector<std::uint32_t>& slots : rank) {
      for (const std::uint32_t slot : slots) last = std::max(last, slot);
    }
    std::vector<bool> taken(last + 2 * rank[back_up].size() + 2, false);
    for (const std::vector<std::uint32_t>& slots : rank) {
      for (const std::uint32_t slot : slots) taken[slot] = true;
    }
    return taken;
  }

  static std::vector<std::uint32_t> backwards_of(const Rank& rank) {
    std::vector<std::uint32_t> slots(rank[back_down].size() + rank[back_up].size());
    std::ranges::merge(rank[back_down], rank[back_up], slots.begin());  // each ascends
    return slots;
  }

  static void put_weights(Rank& rank) {
    rank[weights].clear();
    const std::vector<bool> taken = slots_taken(rank);
    std::uint32_t slot = 0;
    for (const std::uint32_t backward : backwards_of(rank)) {
      slot = std::max(slot, backward + 1);
      while (taken[slot]) ++slot;
      rank[weights].push_back(slot++);
    }
  }

  static int parts_kept(const Rank& rank) {
    if (rank[weights].empty()) {
      Rank with_weights = rank;
      put_weights(with_weights);
      return parts_kept(with_weights);
    }
    std::vector<int> change(slots_taken(rank).size(), 0);
    for (const std::size_t kind : {down, up, weights}) {
      for (const std::uint32_t slot : rank[kind]) change[slot] += kind == weights ? -1 : 1;
    }
    int now = 0, most = 0;
    for (const int each : change) most = std::max(most, now += each);
    return most;
  }

  /// The first slot in which the pass can begin: after what it reads and the one before it of its kind.
  std::uint32_t readable(const PublishedPass& pass) const {
    const Rank& rank = ranks_[pass.rank];
    std::uint32_t from = pass.index > 0 ? rank[pass.kind][pass.index - 1] + 1 : 0;
    const auto after = [&](std::uint32_t slot) { from = std::max(from, slot + 1); };
    if (pass.kind == weights) {
      after(backwards_of(rank)[pass.index]);
      return from;
    }
    const bool goes_down = pass.kind % 2 == 0;
    if (goes_down && pass.rank > 0) after(ranks_[pass.rank - 1][pass.kind][pass.index]);
    if (!goes_down && pass.rank + 1 < ranks_.size()) after(ranks_[pass.rank + 1][pass.kind][pass.index]);
    if (pass.kind > 0) after(rank[pass.kind - 1][pass.index]);
    return from;
  }

  void move_ends(bool with_weights) {
    enum { beginning, middle, end } phase = beginning;
    int most = 0;
    for (const Rank& rank : ranks_) most = std::max(most, parts_kept(rank));
    for (const PublishedPass& pass : sorted()) {
      if (phase == beginning && pass.kind == back_up && pass.rank == 0) phase = middle;
      const bool moves = phase == end || (phase == beginning && with_weights);
      if (phase == middle && pass.kind == down && pass.index + 1 == m_) phase = end;
      if (moves) move_forward(pass, most);
    }
  }

  void move_forward(const PublishedPass& pass, int most) {
    Rank& rank = ranks_[pass.rank];
    const std::vector<bool> taken = slots_taken(rank);
    std::uint32_t& slot = rank[pass.kind][pass.index];
    for (std::uint32_t earlier = readable(pass); earlier < pass.slot; ++earlier) {
      if (taken[earlier]) continue;
      slot = earlier;
      if (parts_kept(rank) <= most) return;
    }
    slot = pass.slot;
  }

  /// Every pass as soon as it can, in each rank's order.
  void squeeze() {
    std::vector<std::uint32_t> now(ranks_.size(), 0);
    for (const PublishedPass& pass : sorted()) {
      std::uint32_t& free = now[pass.rank];
      if (pass.kind != weights) free = std::max(free, readable(pass));
      ranks_[pass.rank][pass.kind][pass.index] = free++;
    }
  }

  std::vector<Turn> turns_of(std::uint32_t r) const {
    const auto p = static_cast<std::uint32_t>(ranks_.size());
    std::vector<PublishedPass> passes;
    for (const PublishedPass& pass : sorted()) {
      if (pass.rank == r) passes.push_back(pass);
    }
    std::array<std::vector<std::uint32_t>, 2> waiting;  // micro-batches for W, of the second part and of the first
    std::array<std::size_t, 2> next{};
    std::vector<Turn> turns;
    const auto add = [&](bool first, std::uint32_t micro_batch, std::uint32_t piece) {
      turns.push_back({PartId{first ? r : 2 * p - 1 - r}, micro_batch, piece});
    };
    const auto add_weights = [&] {
      for (std::size_t part = 0; part < 2; ++part) {
        if (next[part] == waiting[part].size()) continue;
        add(part == 1, waiting[part][next[part]++], piece::weights);
        return true;
      }
      return false;
    };
    std::uint32_t slot = 0;
    for (const PublishedPass& pass : passes) {
      while (slot < pass.slot && add_weights()) ++slot;
      slot = pass.slot + 1;
      add(pass.kind == down || pass.kind == back_up, pass.index,
          (pass.kind < back_down) ? piece::forward : piece::backward);
      if (!(pass.kind < back_down)) waiting[pass.kind - back_down].push_back(pass.index);
    }
    while (add_weights()) {
    }
    return turns;
  }

  std::uint32_t m_;
  std::vector<Rank> ranks_;
};

}  // namespace

VBlock v_min_block(std::uint32_t p) {
  VBlock block;
  const std::uint32_t wait = p % 3 == 0 ? 2 : 0;
  for (std::uint32_t r = 0; r < p; ++r) {
    block.begin.push_back({r, 2 * p - r - 1, 2 * p + wait + r, 4 * p + wait - r - 1});
  }
  return block;
}

VBlock v_half_block(std::uint32_t p) {
  VBlock block;
  const std::uint32_t wait = p % 2 == 0 ? 3 : 0;
  for (std::uint32_t r = 0; r < p; ++r) {
    block.begin.push_back({2 * r, 3 * p - r - 2, 3 * p + wait + 2 * r - 1, 6 * p + wait - r - 2});
  }
  return block;
}

// The shortest way through p ranks, each with one of the 36 ways to fill the period.
VBlock whole_v_block(std::uint32_t p) {
  const std::vector<VBlock::Slots> ways = whole_residues();
  constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
  std::vector<std::vector<std::uint32_t>> least(p, std::vector<std::uint32_t>(ways.size(), none));
  std::vector<std::vector<std::size_t>> before(p, std::vector<std::size_t>(ways.size(), 0));
  for (std::size_t k = 0; k < ways.size(); ++k) {
    if (ways[k][0] == 0) least[0][k] = slots_from(ways[k][1], ways[k][2], 1);
  }
  for (std::size_t r = 1; r < p; ++r) {
    for (std::size_t k = 0; k < ways.size(); ++k) {
      for (std::size_t from = 0; from < ways.size(); ++from) {
        if (least[r - 1][from] == none) continue;
        const std::uint32_t length = least[r - 1][from] + slots_to_next(ways[from], ways[k]);
        if (length >= least[r][k]) continue;
        least[r][k] = length;
        before[r][k] = from;
      }
    }
  }
  for (std::size_t k = 0; k < ways.size(); ++k) {
    if (least[p - 1][k] != none)
      least[p - 1][k] += slots_from(ways[k][0], ways[k][1], 1) + slots_from(ways[k][2], ways[k][3], 2);
  }
  auto k = static_cast<std::size_t>(std::ranges::min_element(least[p - 1]) - least[p - 1].begin());
  std::vector<VBlock::Slots> residues(p);
  for (std::size_t r = p; r-- > 0; k = before[r][k]) residues[r] = ways[k];
  return v_block_of(residues, true);
}

VBlock published_whole_block(std::uint32_t p) {
  std::vector<VBlock::Slots> residues(p);
  std::uint32_t slot = 0;
  for (std::uint32_t r = 0; r < p; ++r) residues[r][0] = ++slot;
  for (std::uint32_t r = p; r-- > 0;) residues[r][1] = ++slot;
  slot += p % 3 == 0 ? 4 : 1;
  std::uint32_t in_a_row = (3 - (p + 2) % 3) % 3;  // backwards; after three of them as long a time of forwards
  const auto next_backward = [&] {
    const std::uint32_t begin = slot;
    slot += 2;
    if (++in_a_row == 3) {
      in_a_row = 0;
      slot += 3;
    }
    return begin;
  };
  for (std::uint32_t r = 0; r < p; ++r) residues[r][2] = next_backward();
  for (std::uint32_t r = p; r-- > 0;) residues[r][3] = next_backward();
  for (VBlock::Slots& of_rank : residues) {
    for (std::uint32_t& each : of_rank) each %= block_period;
  }
  VBlock block = v_block_of(residues, true);
  for (VBlock::Slots& of_rank : block.begin) {  // with a period before all of it, into which passes can be moved
    for (std::uint32_t& begin : of_rank) begin += block_period;
  }
  return block;
}

std::vector<VBlock> shifted_v_blocks(std::uint32_t p) {
  std::vector<VBlock> blocks;
  const auto add = [&](VBlock::Slots first, std::uint32_t k, std::uint32_t ranks, std::uint32_t then) {
    std::vector<VBlock::Slots> residues{first};
    while (true) {
      const VBlock::Slots& r = residues.back();
      if (std::set<std::uint32_t>(r.begin(), r.end()).size() < r.size()) return;
      if (residues.size() == p) break;
      const std::uint32_t by = residues.size() < ranks ? k : then, back = block_period - 1;
      residues.push_back({(r[0] + by) % block_period, (r[1] + back) % block_period, (r[2] + by) % block_period,
                          (r[3] + back) % block_period});
    }
    blocks.push_back(v_block_of(residues, false));
  };
  for (std::uint32_t at = 0; at < block_period * block_period * block_period; ++at) {
    const VBlock::Slots first{0, at % block_period, at / block_period % block_period, at / block_period / block_period};
    for (std::uint32_t k = 1; k < block_period; ++k) {
      add(first, k, p, k);
      for (std::uint32_t then = 1; then < k; ++then) {
        for (std::uint32_t ranks = 1; ranks < p; ++ranks) add(first, k, ranks, then);
      }
    }
  }
  return blocks;
}

std::vector<PipelineOrder> orders_beside_published(const VBlock& block, std::uint32_t m) {
  std::vector<PipelineOrder> orders;
  if (block.has_whole_backwards) {
    const VBlock published = published_whole_block(static_cast<std::uint32_t>(block.begin.size()));
    orders = orders_of(published, m, parts_kept(published, m));
    std::swap(orders.front(), orders.back());  // moved once
  } else {
    orders.push_back(PublishedSlots(block, m).order());
  }
  for (PipelineOrder& order : orders_of(block, m, parts_kept(block, m))) orders.push_back(std::move(order));
  return orders;
}

}  // namespace plimsoll
