#include "sim/engine/event/flow_network.h"

#include <algorithm>
#include <limits>

namespace plimsoll {
namespace {

constexpr double no_rate = -1;
constexpr double nothing = std::numeric_limits<double>::infinity();  // offered by a link without open flows

std::uint32_t longest_route(const Program& program) {
  std::size_t hops = 1;
  for (std::uint32_t r = 0; r + 1 < program.routes.size(); ++r) hops = std::max(hops, program.links_of(r).size());
  return static_cast<std::uint32_t>(hops);
}

}  // namespace

FlowNetwork::FlowNetwork(const Program& program)
    : program_(program),
      hops_(longest_route(program)),
      nodes_(program.streams.size() * hops_),
      links_(program.links.size()),
      flows_(program.streams.size()),
      is_changed_(program.links.size()) {
  changed_.reserve(links_.size());
  component_.reserve(links_.size());
  rates_.reserve(flows_.size());
}

void FlowNetwork::mark(std::uint32_t link) {
  if (is_changed_[link]) return;
  is_changed_[link] = true;
  changed_.push_back(link);
}

void FlowNetwork::add(std::uint32_t stream, std::uint32_t route) {
  flows_[stream].route = route;
  std::uint32_t node = stream * hops_;
  for (const std::uint32_t link : program_.links_of(route)) {
    LinkState& state = links_[link];
    nodes_[node] = {state.first, none, stream};
    if (state.first != none) nodes_[state.first].previous = node;
    state.first = node++;
    ++state.flows;
    mark(link);
  }
}

void FlowNetwork::remove(std::uint32_t stream) {
  std::uint32_t node = stream * hops_;
  for (const std::uint32_t link : program_.links_of(flows_[stream].route)) {
    LinkState& state = links_[link];
    const auto [next, previous, ignored] = nodes_[node++];
    if (next != none) nodes_[next].previous = previous;
    (previous == none ? state.first : nodes_[previous].next) = next;
    --state.flows;
    mark(link);
  }
}

std::span<const FlowNetwork::Rate> FlowNetwork::share_changed() {
  ++search_;
  rates_.clear();
  for (const std::uint32_t link : changed_) {
    is_changed_[link] = false;
    if (links_[link].flows == 0 || links_[link].seen == search_) continue;
    if (share_one(link)) continue;
    collect(link);
    fill();
  }
  changed_.clear();
  return rates_;
}

/// The usual case: flows that meet on one link and cross no other share it alike. Whether it is that.
bool FlowNetwork::share_one(std::uint32_t link) {
  const std::size_t others = rates_.size();
  const LinkState& state = links_[link];
  const double rate = program_.links[link] / state.flows;
  for (std::uint32_t node = state.first; node != none; node = nodes_[node].next) {
    const std::uint32_t stream = nodes_[node].stream;
    if (program_.links_of(flows_[stream].route).size() > 1) {
      rates_.resize(others);
      return false;
    }
    rates_.push_back({stream, rate});
  }
  return true;
}

/// The links and flows connected to the link, the flows at the end of rates_.
void FlowNetwork::collect(std::uint32_t start) {
  component_.assign(1, start);
  links_[start].seen = search_;
  for (std::size_t next = 0; next < component_.size(); ++next) {
    LinkState& state = links_[component_[next]];
    state.left = program_.links[component_[next]];
    state.open = state.flows;
    for (std::uint32_t node = state.first; node != none; node = nodes_[node].next) {
      FlowState& flow = flows_[nodes_[node].stream];
      if (flow.seen == search_) continue;
      flow.seen = search_;
      flow.rate = static_cast<std::uint32_t>(rates_.size());
      rates_.push_back({nodes_[node].stream, no_rate});
      for (const std::uint32_t link : program_.links_of(flow.route)) {
        if (links_[link].seen == search_) continue;
        links_[link].seen = search_;
        component_.push_back(link);
      }
    }
  }
}

/// Gives the least share of any link to all flows of all links that offer no more, until every flow has its rate.
void FlowNetwork::fill() {
  offers_.clear();
  for (const std::uint32_t link : component_) {
    links_[link].place = static_cast<std::uint32_t>(offers_.size());
    offers_.push_back(links_[link].left / links_[link].open);
  }
  while (true) {
    double least = nothing;
    for (const double offer : offers_) least = offer < least ? offer : least;
    if (least == nothing) break;
    for (std::size_t i = 0; i < offers_.size(); ++i) {
      if (offers_[i] <= least) give(component_[i], least);
    }
  }
}

void FlowNetwork::give(std::uint32_t link, double rate) {
  for (std::uint32_t node = links_[link].first; node != none; node = nodes_[node].next) {
    const FlowState& flow = flows_[nodes_[node].stream];
    double& own = rates_[flow.rate].bytes_per_second;
    if (own != no_rate) continue;
    own = rate;
    for (const std::uint32_t crossed : program_.links_of(flow.route)) {
      LinkState& state = links_[crossed];
      state.left -= rate;
      --state.open;
      offers_[state.place] = state.open > 0 ? state.left / state.open : nothing;
    }
  }
}

}  // namespace plimsoll
