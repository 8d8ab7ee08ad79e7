#include "strategies/pipelining/planners/ideals.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "sim/core/tolerance.h"
#include "strategies/pipelining/planners/downsets.h"

namespace plimsoll {
namespace {

// What must share a device, as one node each: the graph that plan_ideals() searches.

struct NodeGroups {
  std::vector<std::vector<std::uint32_t>> members;  ///< nodes of each group, ascending
  Dag dag;                                          ///< which groups come first in the forward
};

/// Nodes that were found to belong together, by any of them.
class Unions {
 public:
  explicit Unions(std::size_t count) : parent_(count) { std::iota(parent_.begin(), parent_.end(), 0U); }

  std::uint32_t find(std::uint32_t n) {
    while (parent_[n] != n) n = parent_[n] = parent_[parent_[n]];
    return n;
  }
  void join(std::uint32_t a, std::uint32_t b) {
    a = find(a), b = find(b);
    parent_[std::max(a, b)] = std::min(a, b);
  }

 private:
  std::vector<std::uint32_t> parent_;
};

/// Groups as nodes of a graph: joined ones are one, numbered by their first member.
struct Contracted {
  std::vector<std::uint32_t> group_of;
  Dag dag;  // without repeated edges
};

Contracted contracted(Unions& unions, std::size_t count,
                      const std::set<std::pair<std::uint32_t, std::uint32_t>>& edges) {
  Contracted made{.group_of = std::vector<std::uint32_t>(count), .dag = {}};
  for (std::uint32_t n = 0; n < count; ++n) {
    const std::uint32_t first = unions.find(n);
    made.group_of[n] = first == n ? made.dag.nodes++ : made.group_of[first];
  }
  std::set<std::pair<std::uint32_t, std::uint32_t>> between;
  for (const auto& [from, to] : edges) {
    if (made.group_of[from] != made.group_of[to]) between.emplace(made.group_of[from], made.group_of[to]);
  }
  made.dag.edges.assign(between.begin(), between.end());
  return made;
}

/// Strongly connected components, each named by one of its nodes (Kosaraju's two searches).
std::vector<std::uint32_t> component_of(const Dag& graph) {
  std::vector<std::vector<std::uint32_t>> after(graph.nodes), before(graph.nodes);
  for (const auto& [from, to] : graph.edges) {
    after[from].push_back(to);
    before[to].push_back(from);
  }
  std::vector<std::uint32_t> left;  // in the order in which a search along the edges leaves the nodes for good
  std::vector<std::size_t> next(graph.nodes, 0);
  std::vector<bool> seen(graph.nodes, false);
  for (std::uint32_t root = 0; root < graph.nodes; ++root) {
    if (seen[root]) continue;
    seen[root] = true;
    for (std::vector<std::uint32_t> path{root}; !path.empty();) {
      const std::uint32_t node = path.back();
      if (next[node] == after[node].size()) {
        left.push_back(node);
        path.pop_back();
      } else if (const std::uint32_t to = after[node][next[node]++]; !seen[to]) {
        seen[to] = true;
        path.push_back(to);
      }
    }
  }
  constexpr std::uint32_t none = ~0U;
  std::vector<std::uint32_t> component(graph.nodes, none);
  for (auto root = left.rbegin(); root != left.rend(); ++root) {
    if (component[*root] != none) continue;
    component[*root] = *root;
    for (std::vector<std::uint32_t> open{*root}; !open.empty();) {
      const std::uint32_t node = open.back();
      open.pop_back();
      for (const std::uint32_t from : before[node]) {
        if (component[from] != none) continue;
        component[from] = *root;
        open.push_back(from);
      }
    }
  }
  return component;
}

/// Joins what has no time of its own with its neighbour, where it has only one.
bool join_idle_ends(const IdealsProblem& problem, const Contracted& graph, Unions& unions) {
  std::vector<double> time(graph.dag.nodes, 0);
  std::vector<std::uint32_t> any(graph.dag.nodes), neighbours(graph.dag.nodes, 0), neighbour(graph.dag.nodes);
  for (std::uint32_t n = 0; n < problem.nodes.size(); ++n) {
    const IdealsProblem::Node& node = problem.nodes[n];
    time[graph.group_of[n]] += node.device.value_or(1) + node.host.value_or(0);
    any[graph.group_of[n]] = n;
  }
  for (const auto& [from, to] : graph.dag.edges) {
    ++neighbours[from];
    ++neighbours[to];
    neighbour[from] = to;
    neighbour[to] = from;
  }
  bool joined = false;
  for (std::uint32_t g = 0; g < graph.dag.nodes; ++g) {
    if (time[g] > 0 || neighbours[g] != 1) continue;
    unions.join(any[g], any[neighbour[g]]);
    joined = true;
  }
  return joined;
}

/// Groups are nodes of one number, each pass by itself, with the backward of the same number; what forward edges
/// between such groups tie into a circle; and what takes no time, has no input and one reader, with that reader.
/// Backward nodes without a forward of their number stand in the forward's order as the edges between backward nodes
/// say, reversed.
NodeGroups groups_of(const IdealsProblem& problem) {
  const std::size_t count = problem.nodes.size();
  Unions unions(count);
  std::map<std::uint32_t, std::uint32_t> first;  // by number
  std::map<std::uint32_t, bool> has_forward;     // by number
  for (std::uint32_t n = 0; n < count; ++n) {
    const IdealsProblem::Node& node = problem.nodes[n];
    if (!node.together) continue;
    const auto [found, is_new] = first.emplace(*node.together, n);
    if (!is_new) unions.join(found->second, n);
    has_forward[*node.together] = has_forward[*node.together] || !node.backward;
  }
  // Whether a node's place in the forward's order is that of a forward node.
  const auto in_forward = [&](std::uint32_t n) {
    const IdealsProblem::Node& node = problem.nodes[n];
    return node.together ? has_forward[*node.together] : !node.backward;
  };
  std::set<std::pair<std::uint32_t, std::uint32_t>> forward;
  for (const auto& [from, to] : problem.edges) {
    const bool back_from = problem.nodes[from].backward, back_to = problem.nodes[to].backward;
    if (!back_from && !back_to) forward.emplace(from, to);
    if (back_from && back_to && (!in_forward(from) || !in_forward(to))) forward.emplace(to, from);
  }
  Contracted graph = contracted(unions, count, forward);
  do {
    const std::vector<std::uint32_t> component = component_of(graph.dag);
    std::vector<std::uint32_t> member(graph.dag.nodes);
    for (std::uint32_t n = 0; n < count; ++n) member[graph.group_of[n]] = n;
    for (std::uint32_t g = 0; g < graph.dag.nodes; ++g) unions.join(member[g], member[component[g]]);
    graph = contracted(unions, count, forward);
  } while (join_idle_ends(problem, graph, unions) && (graph = contracted(unions, count, forward), true));
  NodeGroups groups{.members = std::vector<std::vector<std::uint32_t>>(graph.dag.nodes), .dag = std::move(graph.dag)};
  for (std::uint32_t n = 0; n < count; ++n) groups.members[graph.group_of[n]].push_back(n);
  return groups;
}

constexpr double no_load = std::numeric_limits<double>::infinity();
constexpr std::size_t most_ideals = 200'000;

/// What a producer, or several of one group with the same readers' groups, sends where these are elsewhere.
struct Signal {
  double seconds = 0;
  std::uint32_t readers = 0;  ///< groups, its own left out
  std::uint32_t inside = 0;   ///< readers in the set that grows
  bool is_inside = false;     ///< itself

  bool crosses() const { return is_inside ? inside < readers : inside > 0; }
};

struct IdealsGroup {
  double device = 0, host = 0, bytes = 0;
  bool on_device = true, on_host = true;
  std::vector<std::uint32_t> sent, read;  ///< signals
};

/// The set of groups that grows and shrinks, with what it takes on a device and on a host.
class GrowingSet {
 public:
  GrowingSet(const IdealsProblem& problem, const NodeGroups& groups) : groups_(groups.members.size()) {
    std::vector<std::uint32_t> group_of(problem.nodes.size());
    for (std::uint32_t g = 0; g < groups_.size(); ++g) {
      for (const std::uint32_t n : groups.members[g]) {
        const IdealsProblem::Node& node = problem.nodes[n];
        group_of[n] = g;
        groups_[g].on_device = groups_[g].on_device && node.device.has_value();
        groups_[g].on_host = groups_[g].on_host && node.host.has_value();
        groups_[g].device += node.device.value_or(0);
        groups_[g].host += node.host.value_or(0);
        groups_[g].bytes += node.bytes;
      }
    }
    std::vector<std::set<std::uint32_t>> readers(problem.nodes.size());
    for (const auto& [from, to] : problem.edges) {
      if (group_of[from] != group_of[to]) readers[from].insert(group_of[to]);
    }
    std::map<std::pair<std::uint32_t, std::set<std::uint32_t>>, double> sent;
    for (std::uint32_t n = 0; n < problem.nodes.size(); ++n) {
      if (!readers[n].empty() && problem.nodes[n].sent > 0) sent[{group_of[n], readers[n]}] += problem.nodes[n].sent;
    }
    for (const auto& [ends, seconds] : sent) {
      const auto number = static_cast<std::uint32_t>(signals_.size());
      signals_.push_back({.seconds = seconds, .readers = static_cast<std::uint32_t>(ends.second.size())});
      groups_[ends.first].sent.push_back(number);
      for (const std::uint32_t reader : ends.second) groups_[reader].read.push_back(number);
    }
  }

  void add(std::uint32_t g) { change(g, 1); }
  void remove(std::uint32_t g) { change(g, -1); }

  double work() const { return missing_device_ > 0 ? no_load : device_; }  ///< of a device, without transfers
  double device(const std::optional<double>& most_bytes) const {
    return missing_device_ > 0 || (most_bytes && bytes_ > *most_bytes) ? no_load : device_ + transfers_;
  }
  double host() const { return missing_host_ > 0 ? no_load : host_; }
  double bytes() const { return bytes_; }

 private:
  void change(std::uint32_t g, int sign) {
    const IdealsGroup& group = groups_[g];
    device_ += sign * group.device;
    host_ += sign * group.host;
    bytes_ += sign * group.bytes;
    missing_device_ += group.on_device ? 0 : sign;
    missing_host_ += group.on_host ? 0 : sign;
    for (const std::uint32_t s : group.sent) {
      transfers_ -= signals_[s].crosses() ? signals_[s].seconds : 0;
      signals_[s].is_inside = sign > 0;
      transfers_ += signals_[s].crosses() ? signals_[s].seconds : 0;
    }
    for (const std::uint32_t s : group.read) {
      transfers_ -= signals_[s].crosses() ? signals_[s].seconds : 0;
      signals_[s].inside += static_cast<std::uint32_t>(sign);
      transfers_ += signals_[s].crosses() ? signals_[s].seconds : 0;
    }
  }

  std::vector<IdealsGroup> groups_;
  std::vector<Signal> signals_;
  double device_ = 0, host_ = 0, bytes_ = 0, transfers_ = 0;
  int missing_device_ = 0, missing_host_ = 0;
};

class IdealsSearch {
 public:
  IdealsSearch(const IdealsProblem& problem, const NodeGroups& groups, const Downsets& ideals)
      : problem_(problem),
        groups_(groups),
        ideals_(ideals),
        set_(problem, groups),
        hosts_(problem.hosts + 1),
        devices_(problem.devices + 1),
        cells_(ideals.count() * hosts_ * devices_),
        seen_(ideals.count(), 0) {
    for (std::uint32_t s = 0; problem.fits && s < ideals.count(); ++s) {
      std::uint32_t& nodes = nodes_in_.emplace_back(0);
      for (std::uint32_t g = 0; g < groups.members.size(); ++g) {
        if (ideals.has(s, g)) nodes += static_cast<std::uint32_t>(groups.members[g].size());
      }
    }
  }

  /// Sets that alone take more than `bound` are not looked at. Returns the time of the fullest device or host.
  double run(double bound) {
    bound_ = bound;
    for (std::uint32_t h = 0; h < hosts_; ++h) {
      for (std::uint32_t d = 0; d < (problem_.all_devices ? 1 : devices_); ++d) cell(0, h, d).seconds = 0;
    }
    for (std::uint32_t s = 1; s < ideals_.count(); ++s) {
      grow(s, s);
      for (std::uint32_t h = 0; h < hosts_; ++h) {
        for (std::uint32_t d = 0; d < devices_; ++d) {
          if (h > 0 && cell(s, h - 1, d).seconds < cell(s, h, d).seconds) cell(s, h, d) = cell(s, h - 1, d);
          if (problem_.all_devices) continue;
          if (d > 0 && cell(s, h, d - 1).seconds < cell(s, h, d).seconds) cell(s, h, d) = cell(s, h, d - 1);
        }
      }
    }
    return cell(static_cast<std::uint32_t>(ideals_.count() - 1), hosts_ - 1, devices_ - 1).seconds;
  }

  IdealsPlan plan() {
    IdealsPlan plan{.ideals = ideals_.count(), .pairs = pairs_, .sets = {}};
    auto s = static_cast<std::uint32_t>(ideals_.count() - 1);
    std::uint32_t h = hosts_ - 1, d = devices_ - 1;
    plan.seconds = cell(s, h, d).seconds;
    while (s != 0) {
      const Cell& here = cell(s, h, d);
      IdealsPlan::Set& set = plan.sets.emplace_back();
      for (std::uint32_t g = 0; g < groups_.members.size(); ++g) {
        if (!ideals_.has(s, g) || ideals_.has(here.before, g)) continue;
        set_.add(g);
        set.nodes.insert(set.nodes.end(), groups_.members[g].begin(), groups_.members[g].end());
      }
      set.host = here.on_host;
      set.seconds = set.host ? set_.host() : set_.device({});
      set.bytes = set_.bytes();
      for (std::uint32_t g = 0; g < groups_.members.size(); ++g) {
        if (ideals_.has(s, g) && !ideals_.has(here.before, g)) set_.remove(g);
      }
      std::ranges::sort(set.nodes);
      s = here.before, h = here.hosts_before, d = here.devices_before;
    }
    std::ranges::reverse(plan.sets);
    return plan;
  }

 private:
  struct Cell {
    double seconds = no_load;
    std::uint32_t before = 0;  ///< what the others have
    std::uint32_t hosts_before = 0, devices_before = 0;
    bool on_host = false;
  };

  Cell& cell(std::uint32_t s, std::uint32_t h, std::uint32_t d) {
    return cells_[(std::size_t{s} * hosts_ + h) * devices_ + d];
  }

  /// From the ideal `from` down: what is taken away grows, and is given to one device or host.
  void grow(std::uint32_t from, std::uint32_t s) {
    for (const Downsets::Step& step : ideals_.smaller[s]) {
      if (seen_[step.set] == from) continue;
      seen_[step.set] = from;
      set_.add(step.node);
      const double host = problem_.hosts > 0 ? set_.host() : no_load;
      if (set_.work() <= bound_ || host <= bound_) {
        ++pairs_;
        give(from, step.set, set_.device(problem_.device_bytes), host);
        grow(from, step.set);
      }
      set_.remove(step.node);
    }
  }

  /// What is added to one ideal by another, on the d-th device.
  bool fits(std::uint32_t before, std::uint32_t from, std::uint32_t d) const {
    return !problem_.fits || problem_.fits(nodes_in_[before], nodes_in_[from], devices_ - d);
  }

  void give(std::uint32_t from, std::uint32_t before, double device, double host) {
    for (std::uint32_t h = 0; h < hosts_; ++h) {
      for (std::uint32_t d = 0; d < devices_; ++d) {
        Cell& best = cell(from, h, d);
        if (d > 0 && device < best.seconds) {
          const double time = std::max(device, cell(before, h, d - 1).seconds);
          if (time < best.seconds && fits(before, from, d)) best = {time, before, h, d - 1, false};
        }
        if (h > 0 && host < best.seconds) {
          const double time = std::max(host, cell(before, h - 1, d).seconds);
          if (time < best.seconds) best = {time, before, h - 1, d, true};
        }
      }
    }
  }

  const IdealsProblem& problem_;
  const NodeGroups& groups_;
  const Downsets& ideals_;
  GrowingSet set_;
  std::uint32_t hosts_, devices_;  ///< one more than there are
  std::vector<Cell> cells_;
  std::vector<std::uint32_t> seen_;
  std::vector<std::uint32_t> nodes_in_;  ///< of each ideal, where it matters what fits
  double bound_ = no_load;
  std::size_t pairs_ = 0;
};

/// The groups in one order: its downsets are what a chain has.
Dag in_one_row(const Dag& dag) {
  Dag row{.nodes = dag.nodes, .edges = {}};
  const std::vector<std::uint32_t> order = order_of(dag);
  for (std::size_t k = 1; k < order.size(); ++k) row.edges.emplace_back(order[k - 1], order[k]);
  return row;
}

}  // namespace

IdealsOutcome plan_ideals(const IdealsProblem& problem) {
  const NodeGroups groups = groups_of(problem);
  const std::optional<Downsets> ideals = downsets_of(groups.dag, most_ideals);
  if (!ideals) {
    return {.plan = {}, .reason = "more than " + std::to_string(most_ideals) + " sets of layers that may come first"};
  }
  // The best cut of one row of the groups is a bound on what any part of the answer takes.
  const std::optional<Downsets> row = downsets_of(in_one_row(groups.dag), most_ideals);
  const double bound = IdealsSearch(problem, groups, *row).run(no_load);
  IdealsSearch search(problem, groups, *ideals);
  if (search.run(bound * (1 + model_tolerance)) == no_load) {
    return {.plan = {}, .reason = "no device or host can take all ops that must stay together"};
  }
  return {.plan = search.plan(), .reason = {}};
}

}  // namespace plimsoll
