#include "strategies/pipelining/orders/both_ways.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>

#include "sim/core/expects.h"

namespace plimsoll {

/// With F = B = 1 micro-batch i of a unit enters each pipeline at slot 2i and takes a slot a stage. Forwards of the
/// ways down and up a rank have slots of different parity, as have backwards, and no two passes of a rank have the same
/// slot modulo 2p: the next unit begins 2p slots later.
PipelineOrder chimera_order(std::uint32_t p, std::uint32_t m, std::uint32_t pairs) {
  EXPECTS(pairs > 0 && p % (2 * pairs) == 0 && m >= 2 * pairs);
  PipelineOrder order;
  const std::uint32_t ways = 2 * pairs;
  for (std::uint32_t way = 0; way < ways; ++way) {
    for (std::uint32_t s = 0; s < p; ++s) {
      const std::uint32_t moved = (s + way / 2 * (p / pairs)) % p;
      order.rank_of.push_back(way % 2 == 0 ? moved : p - 1 - moved);
      order.stage_of.push_back(s);
    }
  }
  std::vector<std::map<std::uint32_t, Turn>> slots(p);  // by rank
  for (std::uint32_t i = 0; i < m; ++i) {
    const std::uint32_t way = i % ways, begins = i / p * 2 * p + i % p / ways * 2;
    for (std::uint32_t s = 0; s < p; ++s) {
      const PartId part{way * p + s};
      std::map<std::uint32_t, Turn>& of_rank = slots[order.rank_of[part.index]];
      const bool free = of_rank.try_emplace(begins + s, Turn{part, i, piece::forward}).second &&
                        of_rank.try_emplace(begins + 2 * p - 1 - s, Turn{part, i, piece::backward}).second;
      EXPECTS(free);
    }
  }
  for (const std::map<std::uint32_t, Turn>& of_rank : slots) {
    std::vector<Turn>& turns = order.turns.emplace_back();
    for (const auto& [slot, turn] : of_rank) turns.push_back(turn);
  }
  return order;
}

namespace {

class DualPipeRank {
 public:
  explicit DualPipeRank(const MeetingWays& ways) : ways_(ways) {}

  std::vector<Turn> turns(std::uint32_t ranks, std::uint32_t before, std::uint32_t m) {
    const std::uint32_t after = ranks - before - 1;
    for (std::uint32_t i = 0; i < 2 * after; ++i) forward(0);
    for (std::uint32_t i = 0; i <= before; ++i) {
      forward(0);
      forward(1);
    }
    for (std::uint32_t i = 0; i < after; ++i) {
      input_gradient(1);
      weights();
      forward(1);
    }
    for (std::uint32_t i = 0; i < m - 2 * ranks + before + 1; ++i) {
      forward(0);
      backward(1);
      forward(1);
      backward(0);
    }
    for (std::uint32_t i = 0; i < after; ++i) {
      backward(1);
      forward(1);
      backward(0);
    }
    for (std::uint32_t k = 0; k < 2 * (before + 1); ++k) {  // later ones leave their weight gradients for the end
      k < before + 1 ? backward(1 - k % 2) : input_gradient(1 - k % 2);
    }
    for (std::uint32_t i = 0; i < after; ++i) {
      weights();
      input_gradient(0);
    }
    for (std::uint32_t i = 0; i <= before; ++i) weights();
    EXPECTS(waiting_.empty());
    return std::move(turns_);
  }

 private:
  Turn next(std::array<std::uint32_t, 2>& done, std::size_t way, std::uint32_t which) {
    return {ways_.parts[way], ways_.first[way] + ways_.step * done[way]++, which};
  }
  void forward(std::size_t way) { turns_.push_back(next(forwards_, way, piece::forward)); }
  void input_gradient(std::size_t way) {
    turns_.push_back(next(backwards_, way, piece::backward));
    waiting_.push_back(turns_.back());
  }
  void backward(std::size_t way) {
    turns_.push_back(next(backwards_, way, piece::backward));
    turns_.push_back({turns_.back().part, turns_.back().micro_batch, piece::weights});
  }
  void weights() {
    turns_.push_back({waiting_.front().part, waiting_.front().micro_batch, piece::weights});
    waiting_.pop_front();
  }

  const MeetingWays& ways_;
  std::array<std::uint32_t, 2> forwards_{}, backwards_{};
  std::deque<Turn> waiting_;
  std::vector<Turn> turns_;
};

}  // namespace

std::vector<Turn> dualpipe_turns(const MeetingWays& ways, std::uint32_t ranks, std::uint32_t before, std::uint32_t m) {
  EXPECTS(before < ranks && m + before + 1 >= 2 * ranks);
  return DualPipeRank(ways).turns(ranks, before, m);
}

/// Micro-batches of the way down are even, of the way up odd. The way that begins nearer to a rank comes first.
PipelineOrder dualpipe_order(std::uint32_t p, std::uint32_t m) {
  EXPECTS(p % 2 == 0 && m % 2 == 0 && m >= 2 * p);
  PipelineOrder order;
  order.weights_apart = true;
  for (std::uint32_t part = 0; part < 2 * p; ++part) {
    order.rank_of.push_back(part < p ? part : 2 * p - 1 - part);
    order.stage_of.push_back(part % p);
  }
  for (std::uint32_t rank = 0; rank < p; ++rank) {
    const PartId down{rank}, up{2 * p - 1 - rank};
    const bool down_first = rank < p / 2;
    const MeetingWays ways = down_first ? MeetingWays{{down, up}, {0, 1}, 2} : MeetingWays{{up, down}, {1, 0}, 2};
    order.turns.push_back(dualpipe_turns(ways, p / 2, down_first ? rank : p - 1 - rank, m / 2));
  }
  return order;
}

}  // namespace plimsoll
