// The building blocks of v_slots.h.

#include <algorithm>
#include <limits>
#include <set>

#include "strategies/pipelining/v_slots.h"

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

}  // namespace plimsoll
