#include "strategies/pipelining/both_ways.h"

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

/// What one rank of DualPipe does.
class DualPipeRank {
 public:
  DualPipeRank(std::uint32_t p, std::uint32_t m, std::uint32_t rank)
      : p_(p), m_(m), nearer_(std::min(rank, p - 1 - rank)), parts_{PartId{rank}, PartId{p + p - 1 - rank}} {
    if (rank >= p / 2) std::ranges::reverse(parts_);  // the way that begins nearer comes first
  }

  std::vector<Turn> turns() {
    const std::uint32_t half = p_ / 2, h = nearer_, middle = half - 1;
    for (std::uint32_t i = 0; i < 2 * (half - h - 1); ++i) forward(0);
    for (std::uint32_t i = 0; i <= h; ++i) {
      forward(0);
      forward(1);
    }
    for (std::uint32_t i = 0; i < half - h - 1; ++i) {
      input_gradient(1);
      weights();
      forward(1);
    }
    for (std::uint32_t i = 0; i < m_ / 2 - p_ + h + 1; ++i) {
      forward(0);
      backward(1);
      forward(1);
      backward(0);
    }
    for (std::uint32_t i = 0; i < half - h - 1; ++i) {
      backward(1);
      forward(1);
      backward(0);
    }
    for (std::uint32_t k = 0; k < 2 * (h + 1); ++k) {  // later ones leave their weight gradients for the end
      k < h + 1 ? backward(1 - k % 2) : input_gradient(1 - k % 2);
    }
    for (std::uint32_t i = 0; i < half - h - 1; ++i) {
      weights();
      input_gradient(0);
    }
    for (std::uint32_t i = 0; i <= h; ++i) weights();
    EXPECTS(waiting_.empty() && middle + 1 == half);
    return std::move(turns_);
  }

 private:
  /// Micro-batches of the way down are even, of the way up odd.
  Turn next(std::array<std::uint32_t, 2>& done, std::size_t way, std::uint32_t which) {
    const std::uint32_t up = parts_[way].index >= p_ ? 1 : 0;
    return {parts_[way], 2 * done[way]++ + up, which};
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

  std::uint32_t p_, m_, nearer_;
  std::array<PartId, 2> parts_;
  std::array<std::uint32_t, 2> forwards_{}, backwards_{};
  std::deque<Turn> waiting_;
  std::vector<Turn> turns_;
};

}  // namespace

PipelineOrder dualpipe_order(std::uint32_t p, std::uint32_t m) {
  EXPECTS(p % 2 == 0 && m % 2 == 0 && m >= 2 * p);
  PipelineOrder order;
  order.weights_apart = true;
  for (std::uint32_t part = 0; part < 2 * p; ++part) {
    order.rank_of.push_back(part < p ? part : 2 * p - 1 - part);
    order.stage_of.push_back(part % p);
  }
  for (std::uint32_t rank = 0; rank < p; ++rank) order.turns.push_back(DualPipeRank(p, m, rank).turns());
  return order;
}

}  // namespace plimsoll
