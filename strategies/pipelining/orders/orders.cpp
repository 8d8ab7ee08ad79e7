#include "strategies/pipelining/orders/orders.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace plimsoll {
namespace {

PipelineOrder one_part_a_rank(std::uint32_t p) {
  PipelineOrder order{std::vector<std::uint32_t>(p), std::vector<std::vector<Turn>>(p)};
  std::iota(order.rank_of.begin(), order.rank_of.end(), 0U);
  return order;
}

/// What a rank takes, of which stage.
struct RankShare {
  std::uint32_t stage;
  std::vector<std::uint32_t> micro_batches;
};

std::vector<RankShare> shares_of(const std::vector<std::uint32_t>& copies, std::uint32_t m) {
  std::vector<RankShare> shares;
  for (std::uint32_t s = 0; s < copies.size(); ++s) {
    for (std::uint32_t k = 0; k < copies[s]; ++k) {
      RankShare& share = shares.emplace_back(RankShare{s, {}});
      for (std::uint32_t i = k; i < m; i += copies[s]) share.micro_batches.push_back(i);
    }
  }
  return shares;
}

/// Part g on rank g, of the stage of its share.
PipelineOrder one_share_a_rank(const std::vector<RankShare>& shares) {
  PipelineOrder order = one_part_a_rank(static_cast<std::uint32_t>(shares.size()));
  if (shares.back().stage + 1 == shares.size()) return order;
  for (const RankShare& share : shares) order.stage_of.push_back(share.stage);
  return order;
}

}  // namespace

PipelineOrder gpipe_order(std::uint32_t p, std::uint32_t m, BackwardOrder backward) {
  PipelineOrder order = one_part_a_rank(p);
  for (std::uint32_t r = 0; r < p; ++r) {
    for (std::uint32_t i = 0; i < m; ++i) order.turns[r].push_back({PartId{r}, i, piece::forward});
    for (std::uint32_t i = 0; i < m; ++i) {
      const std::uint32_t micro_batch = backward == BackwardOrder::fifo ? i : m - 1 - i;
      order.turns[r].push_back({PartId{r}, micro_batch, piece::backward});
    }
  }
  return order;
}

PipelineOrder one_forward_one_backward_order(std::uint32_t m, const std::vector<std::uint32_t>& warm_up,
                                             const std::vector<std::uint32_t>& copies) {
  const std::vector<RankShare> shares = shares_of(copies.empty() ? std::vector(warm_up.size(), 1U) : copies, m);
  PipelineOrder order = one_share_a_rank(shares);
  for (std::uint32_t r = 0; r < shares.size(); ++r) {
    const std::vector<std::uint32_t>& own = shares[r].micro_batches;
    std::size_t next = 0;
    const auto forward = [&] {
      if (next < own.size()) order.turns[r].push_back({PartId{r}, own[next++], piece::forward});
    };
    while (next < std::min<std::size_t>(warm_up[shares[r].stage], own.size())) forward();
    for (const std::uint32_t i : own) {
      forward();
      order.turns[r].push_back({PartId{r}, i, piece::backward});
    }
  }
  return order;
}

PipelineOrder one_forward_one_backward_order(std::uint32_t m, std::uint32_t p) {
  std::vector<std::uint32_t> warm_up;
  for (std::uint32_t r = 0; r < p; ++r) warm_up.push_back(p - r - 1);
  return one_forward_one_backward_order(m, warm_up);
}

std::vector<std::uint32_t> warm_up_for(const std::vector<std::uint32_t>& copies) {
  std::vector<std::uint32_t> warm_up(copies.size());
  std::uint32_t behind = 0;
  for (std::size_t s = copies.size(); s-- > 0;) {
    warm_up[s] = (behind + copies[s] - 1) / copies[s];
    behind += copies[s];
  }
  return warm_up;
}

std::vector<std::uint32_t> interleaved_groups(std::uint32_t p, std::uint32_t m, std::uint32_t group) {
  std::vector<std::uint32_t> groups;
  if (group == 0) {
    const std::uint32_t count = std::max(1U, m / p);
    for (std::uint32_t k = 0; k < count; ++k) groups.push_back(m / count + (k < m % count ? 1 : 0));
    return groups;
  }
  for (std::uint32_t first = 0; first < m; first += group) groups.push_back(std::min(group, m - first));
  return groups;
}

PipelineOrder interleaved_order(std::uint32_t p, std::uint32_t v, std::uint32_t m, WarmUp rule) {
  return interleaved_order(p, v, interleaved_groups(p, m), rule);
}

PipelineOrder interleaved_order(std::uint32_t p, std::uint32_t v, std::span<const std::uint32_t> groups, WarmUp rule) {
  PipelineOrder order;
  for (std::uint32_t g = 0; g < p * v; ++g) order.rank_of.push_back(g % p);
  order.turns.resize(p);
  std::vector<std::pair<std::uint32_t, std::uint32_t>> steps;  // of a direction: part of the rank, micro-batch
  std::uint32_t m = 0;
  for (const std::uint32_t group : groups) {
    for (std::uint32_t chunk = 0; chunk < v; ++chunk) {
      for (std::uint32_t i = m; i < m + group; ++i) steps.emplace_back(chunk, i);
    }
    m += group;
  }
  const std::size_t all = steps.size();
  for (std::uint32_t r = 0; r < p; ++r) {
    const std::uint32_t behind = p - r - 1, others = (v - 1) * groups.front();
    const std::size_t ahead = others + (rule == WarmUp::megatron ? 2 * behind : behind);
    const bool all_first = rule == WarmUp::megatron && m == p;
    const std::size_t warm_up = all_first ? all : std::min(ahead, all);
    std::vector<Turn>& turns = order.turns[r];
    const auto forward = [&](std::size_t k) {
      turns.push_back({PartId{steps[k].first * p + r}, steps[k].second, piece::forward});
    };
    for (std::size_t k = 0; k < warm_up; ++k) forward(k);
    for (std::size_t k = 0; k < all; ++k) {
      if (warm_up + k < all) forward(warm_up + k);
      turns.push_back({PartId{(v - 1 - steps[k].first) * p + r}, steps[k].second, piece::backward});
    }
  }
  return order;
}

PipelineOrder zero_bubble_order(std::uint32_t p, std::uint32_t m, std::uint32_t depth) {
  PipelineOrder order = one_part_a_rank(p);
  order.weights_apart = true;
  for (std::uint32_t r = 0; r < p; ++r) {
    const std::uint32_t warm_up = (p - r - 1) * depth, delay = (p - 1) * depth;
    std::vector<Turn>& turns = order.turns[r];
    std::uint32_t forwards = 0, weights = 0;
    const auto forward = [&] {
      if (forwards < m) turns.push_back({PartId{r}, forwards++, piece::forward});
    };
    const auto weight = [&] {
      if (weights < m) turns.push_back({PartId{r}, weights++, piece::weights});
    };
    for (std::uint32_t i = 0; i < warm_up; ++i) forward();
    for (std::uint32_t i = 0; i < m; ++i) {
      forward();
      turns.push_back({PartId{r}, i, piece::backward});
      if (warm_up + i >= delay) weight();
    }
    while (weights < m) weight();
  }
  return order;
}

std::vector<Waiting> waiting_in(const Partition& partition) {
  std::vector<Waiting> most(partition.parts.size());
  std::vector<std::uint32_t> in_flight(most.size()), weights(most.size());
  for (const std::vector<Turn>& order : partition.order) {
    for (const Turn& turn : order) {
      const std::size_t p = turn.part.index;
      const Part& part = partition.parts[p];
      switch (PieceName{static_cast<std::uint8_t>(turn.piece)}) {
        case PieceName::forward:
        case PieceName::arrive:
          most[p].in_flight = std::max(most[p].in_flight, ++in_flight[p]);
          break;
        case PieceName::leave:
          --in_flight[p];
          break;
        case PieceName::backward:
          --in_flight[p];
          if (part.cut_before_weights) most[p].weights = std::max(most[p].weights, ++weights[p]);
          break;
        case PieceName::weights:
          --weights[p];
          break;
      }
    }
  }
  return most;
}

PartCosts in_ticks(PartCosts costs) {
  const auto kinds = {&costs.f, &costs.b, &costs.w, &costs.sent, &costs.returned};
  double longest = 0;
  for (const std::vector<double>* times : kinds) {
    for (const double time : *times) longest = std::max(longest, time);
  }
  if (longest <= 0) return costs;
  const double ticks = std::pow(10, 9 - std::floor(std::log10(longest)));
  for (std::vector<double>* times : kinds) {
    for (double& time : *times) time = std::round(time * ticks);
  }
  return costs;
}

}  // namespace plimsoll
