#include "strategies/solve/max_flow.h"

#include <algorithm>

#include "sim/core/expects.h"

namespace plimsoll {
namespace {

constexpr std::uint32_t unseen = std::numeric_limits<std::uint32_t>::max();

}  // namespace

void FlowGraph::edge(std::size_t from, std::size_t to, double capacity) {
  EXPECTS(from < out_.size() && to < out_.size() && capacity >= 0);
  out_[from].push_back(static_cast<std::uint32_t>(edges_.size()));
  edges_.push_back({static_cast<std::uint32_t>(to), capacity});
  out_[to].push_back(static_cast<std::uint32_t>(edges_.size()));
  edges_.push_back({static_cast<std::uint32_t>(from), 0});
}

// Levels by breadth-first search over edges with capacity left.
bool FlowGraph::measure(std::size_t source, std::size_t sink) {
  level_.assign(out_.size(), unseen);
  level_[source] = 0;
  std::vector<std::uint32_t> queue{static_cast<std::uint32_t>(source)};
  for (std::size_t q = 0; q < queue.size(); ++q) {
    for (const std::uint32_t e : out_[queue[q]]) {
      const auto [to, left] = edges_[e];
      if (!(left > 0) || level_[to] != unseen) continue;
      level_[to] = level_[queue[q]] + 1;
      queue.push_back(to);
    }
  }
  return level_[sink] != unseen;
}

// One way from source to sink along rising levels, filled; false where there is none any more.
bool FlowGraph::augment(std::size_t source, std::size_t sink) {
  std::vector<std::uint32_t> way;
  std::size_t at = source;
  while (at != sink) {
    if (next_[at] == out_[at].size()) {
      if (way.empty()) return false;
      at = edges_[way.back() ^ 1U].to;
      way.pop_back();
      ++next_[at];
      continue;
    }
    const std::uint32_t e = out_[at][next_[at]];
    if (edges_[e].left > 0 && level_[edges_[e].to] == level_[at] + 1) {
      way.push_back(e);
      at = edges_[e].to;
    } else {
      ++next_[at];
    }
  }
  double flow = unlimited;
  for (const std::uint32_t e : way) flow = std::min(flow, edges_[e].left);
  EXPECTS(flow < unlimited);
  for (const std::uint32_t e : way) {
    edges_[e].left -= flow;
    edges_[e ^ 1U].left += flow;
  }
  return true;
}

std::vector<bool> FlowGraph::source_side(std::size_t source, std::size_t sink) {
  while (measure(source, sink)) {
    next_.assign(out_.size(), 0);
    while (augment(source, sink)) {
    }
  }
  std::vector<bool> reached;
  for (const std::uint32_t level : level_) reached.push_back(level != unseen);
  return reached;
}

}  // namespace plimsoll
