#include "sim/bound/cuts_between.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "sim/bound/max_flow.h"
#include "sim/core/expects.h"

namespace plimsoll {
namespace {

constexpr std::uint32_t source_here = 0, sink_here = 1;

/// Steps of a byte: the same at all prices, so that rounding leaves cuts nested; a power of two, so that whole bytes
/// are not rounded.
double steps_of(double most) {
  return std::exp2(std::floor(std::log2(largest_flow / std::max(1.0, most))));
}

double capacity_of(const PricedArc& arc, double price, double scale) {
  if (arc.seconds == FlowGraph::unlimited) return FlowGraph::unlimited;
  return whole_capacity(scale * arc.seconds / price) + std::floor(scale * arc.bytes);
}

}  // namespace

CutsBetween::CutsBetween(std::uint32_t nodes, std::vector<PricedArc> arcs, double most)
    : node_(nodes), arcs_(std::move(arcs)), source_side_(nodes, false), scale_(steps_of(most)) {
  std::iota(node_.begin(), node_.end(), 0);
  source_side_[source_here] = true;
  for (const PricedArc& arc : arcs_) {
    EXPECTS(arc.seconds == 0 || arc.seconds == FlowGraph::unlimited || arc.to == sink_here);
  }
}

CutsBetween::Found CutsBetween::at(double price) const {
  EXPECTS(price > 0);
  FlowGraph network(node_.size());
  for (const PricedArc& arc : arcs_) network.edge(arc.from, arc.to, capacity_of(arc, price, scale_));
  Found found{network.cut(source_here, sink_here).source_side};
  for (const PricedArc& arc : arcs_) {
    const int more = (found.source_side[arc.from] && !found.source_side[arc.to] ? 1 : 0) - (arc.from == source_here);
    if (more == 0) continue;
    found.seconds += more * arc.seconds;
    found.bytes += more * arc.bytes;
  }
  return found;
}

/// Of the nodes on the source's side of that cut, or of the others.
CutsBetween CutsBetween::half(const Found& cut, bool source_half) const {
  CutsBetween half;
  half.scale_ = scale_;
  half.source_side_ = source_half ? source_side_ : source_side(cut);
  std::vector<std::uint32_t> here(node_.size(), source_half ? sink_here : source_here);
  here[source_here] = source_here;
  here[sink_here] = sink_here;
  half.node_ = {node_[source_here], node_[sink_here]};
  for (std::size_t n = 2; n < node_.size(); ++n) {
    if (cut.source_side[n] != source_half) continue;
    here[n] = static_cast<std::uint32_t>(half.node_.size());
    half.node_.push_back(node_[n]);
  }
  for (const PricedArc& arc : arcs_) {
    const std::uint32_t from = here[arc.from], to = here[arc.to];
    const bool is_open = from >= 2 || to >= 2;
    if (is_open && from != sink_here && to != source_here) half.arcs_.push_back({from, to, arc.seconds, arc.bytes});
  }
  return half;
}

CutsBetween CutsBetween::before(const Found& cut) const {
  return half(cut, true);
}

CutsBetween CutsBetween::behind(const Found& cut) const {
  return half(cut, false);
}

std::vector<bool> CutsBetween::source_side(const Found& cut) const {
  std::vector<bool> side = source_side_;
  for (std::size_t n = 0; n < node_.size(); ++n) {
    if (cut.source_side[n]) side[node_[n]] = true;
  }
  return side;
}

double least_cost(const std::vector<PricedArc>& arcs, const std::vector<bool>& source_side, double price, double most) {
  const double scale = steps_of(most);
  double sum = 0;
  for (const PricedArc& arc : arcs) {
    if (source_side[arc.from] && !source_side[arc.to]) sum += capacity_of(arc, price, scale);
  }
  return sum / scale * price * (1 - flow_rounding);
}

}  // namespace plimsoll
