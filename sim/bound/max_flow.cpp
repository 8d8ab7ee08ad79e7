#include "sim/bound/max_flow.h"

#include <algorithm>
#include <cmath>

#include "sim/core/expects.h"

namespace plimsoll {

double whole_capacity(double capacity) {
  return std::min(std::floor(capacity - flow_rounding * capacity), 2 * largest_flow);
}

double capacity_scale(double again, double at_most) {
  constexpr double steps = 1e14;
  const double scale = again > 0 ? steps / again : largest_flow / std::max(1.0, at_most);
  return at_most * scale > largest_flow ? largest_flow / at_most : scale;
}
namespace {

constexpr std::uint32_t unseen = std::numeric_limits<std::uint32_t>::max();

}  // namespace

std::size_t FlowGraph::edge(std::size_t from, std::size_t to, double capacity) {
  EXPECTS(from < nodes_ && to < nodes_ && capacity >= 0);
  edges_.push_back({static_cast<std::uint32_t>(from), static_cast<std::uint32_t>(to), capacity});
  return edges_.size() - 1;
}

void FlowGraph::set_capacity(std::size_t edge, double capacity) {
  EXPECTS(edge < edges_.size() && capacity >= 0);
  edges_[edge].capacity = capacity;
}

void FlowGraph::lay_out() {
  if (arc_of_.size() == edges_.size() && !first_.empty()) return;
  first_.assign(nodes_ + 1, 0);
  for (const Edge& edge : edges_) {
    ++first_[edge.from + 1];
    ++first_[edge.to + 1];
  }
  for (std::size_t n = 0; n < nodes_; ++n) first_[n + 1] += first_[n];
  std::vector<std::uint32_t> end(first_.begin(), first_.end() - 1);
  arcs_.resize(2 * edges_.size());
  arc_of_.resize(edges_.size());
  for (std::size_t e = 0; e < edges_.size(); ++e) {
    const std::uint32_t there = end[edges_[e].from]++, back = end[edges_[e].to]++;
    arcs_[there] = {edges_[e].to, back, 0};
    arcs_[back] = {edges_[e].from, there, 0};
    arc_of_[e] = there;
  }
}

// Levels by breadth-first search over arcs with capacity left.
bool FlowGraph::measure(std::uint32_t source, std::uint32_t sink) {
  level_.assign(nodes_, unseen);
  level_[source] = 0;
  queue_.assign(1, source);
  for (std::size_t q = 0; q < queue_.size(); ++q) {
    const std::uint32_t at = queue_[q];
    for (std::uint32_t a = first_[at]; a < first_[at + 1]; ++a) {
      const Arc& arc = arcs_[a];
      if (!(arc.left > 0) || level_[arc.to] != unseen) continue;
      level_[arc.to] = level_[at] + 1;
      queue_.push_back(arc.to);
    }
  }
  return level_[sink] != unseen;
}

// A flow along rising levels that leaves no such way from source to sink. After each way the search goes on where the
// first of its arcs was filled.
double FlowGraph::fill(std::uint32_t source, std::uint32_t sink) {
  next_.assign(first_.begin(), first_.end() - 1);
  way_.clear();
  double sum = 0;
  std::uint32_t at = source;
  while (true) {
    if (at == sink) {
      double flow = unlimited;
      for (const std::uint32_t a : way_) flow = std::min(flow, arcs_[a].left);
      EXPECTS(flow < unlimited);
      sum += flow;
      std::size_t filled = way_.size();
      for (std::size_t w = way_.size(); w-- > 0;) {
        Arc& arc = arcs_[way_[w]];
        arc.left -= flow;
        arcs_[arc.back].left += flow;
        if (!(arc.left > 0)) filled = w;
      }
      at = arcs_[arcs_[way_[filled]].back].to;
      way_.resize(filled);
      continue;
    }
    if (next_[at] == first_[at + 1]) {
      if (way_.empty()) return sum;
      at = arcs_[arcs_[way_.back()].back].to;
      way_.pop_back();
      ++next_[at];
      continue;
    }
    const Arc& arc = arcs_[next_[at]];
    if (arc.left > 0 && level_[arc.to] == level_[at] + 1) {
      way_.push_back(next_[at]);
      at = arc.to;
    } else {
      ++next_[at];
    }
  }
}

FlowGraph::Cut FlowGraph::cut(std::size_t source, std::size_t sink) {
  EXPECTS(source < nodes_ && sink < nodes_ && source != sink);
  lay_out();
  for (Arc& arc : arcs_) arc.left = 0;
  for (std::size_t e = 0; e < edges_.size(); ++e) arcs_[arc_of_[e]].left = edges_[e].capacity;
  const auto from = static_cast<std::uint32_t>(source), to = static_cast<std::uint32_t>(sink);
  Cut cut;
  while (measure(from, to)) cut.flow += fill(from, to);
  cut.source_side.reserve(nodes_);
  for (const std::uint32_t level : level_) cut.source_side.push_back(level != unseen);
  return cut;
}

}  // namespace plimsoll
