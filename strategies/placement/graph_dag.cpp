#include "strategies/placement/graph_dag.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "sim/core/expects.h"
#include "sim/core/op_attribute.h"
#include "sim/io/input_error.h"
#include "sim/model/device_classes.h"

namespace plimsoll {
namespace {

Nanoseconds nanoseconds(Seconds time) {
  constexpr double per_second = 1e9;
  return std::llround(per_second * time.value);
}

/// Sets of nodes that grow together.
class Sets {
 public:
  explicit Sets(std::uint32_t size) : parent_(size) { std::iota(parent_.begin(), parent_.end(), 0u); }

  std::uint32_t find(std::uint32_t v) {
    while (parent_[v] != v) v = parent_[v] = parent_[parent_[v]];
    return v;
  }
  void join(std::uint32_t a, std::uint32_t b) {
    const std::uint32_t first = find(a), second = find(b);
    parent_[std::max(first, second)] = std::min(first, second);
  }

 private:
  std::vector<std::uint32_t> parent_;
};

/// What happens to a storage, in the order of nodes.
struct StorageUse {
  std::uint32_t node = 0;
  bool makes = false;  ///< or overwrites
};

class DagBuilder {
 public:
  DagBuilder(const Problem& problem, std::uint32_t devices, ParameterHomes homes)
      : problem_(problem), graph_(problem.graph), homes_(homes) {
    made_.classes = device_classes(problem.platform, devices);
    node_of_.assign(graph_.ops.size(), no_node);
    for (std::uint32_t o = 0; o < graph_.ops.size(); ++o) {
      if (graph_.ops[o].is_view || graph_.ops[o].phase == Phase::update) continue;
      node_of_[o] = static_cast<std::uint32_t>(made_.op.size());
      made_.op.push_back(OpId{o});
    }
    made_.dag.size = static_cast<std::uint32_t>(made_.op.size());
    made_.has_host = has_pinned_ops(graph_);
  }

  GraphDag build() && {
    OpDag& dag = made_.dag;
    for (const DeviceId device : made_.classes.one) {
      std::vector<Nanoseconds>& times = dag.time.emplace_back();
      for (const OpId op : made_.op) times.push_back(is_pinned_to_host(graph_[op]) ? cannot_run : time_of(op, device));
    }
    if (made_.has_host) {
      std::vector<Nanoseconds>& times = dag.time.emplace_back();
      for (const OpId op : made_.op) times.push_back(is_pinned_to_host(graph_[op]) ? time_of(op, {}) : cannot_run);
    }
    for (const OpId op : made_.op) {
      dag.workspace.push_back(graph_[op].workspace.count);
      dag.backward.push_back(is_backward(graph_[op].phase));
    }
    find_values();
    find_residents();
    find_groups();
    connect();
    return std::move(made_);
  }

 private:
  Nanoseconds time_of(OpId op, DeviceId device) const {
    return nanoseconds(duration_on(problem_, op, device, Saving::keep));
  }

  /// A value for each storage of the micro-batch; where it is overwritten in place, one up to the last overwriting and
  /// one from there on, so that both count while that runs.
  void find_values() {
    std::vector<std::vector<StorageUse>> uses(graph_.storages);
    std::vector<TensorId> last(graph_.storages);
    for (std::uint32_t v = 0; v < made_.dag.size; ++v) {
      const Op& op = graph_[made_.op[v]];
      const auto note = [&](TensorId t, bool makes) {
        if (!per_micro_batch(graph_[t].kind)) return;
        std::vector<StorageUse>& list = uses[graph_[t].storage.index];
        if (makes || list.empty()) last[graph_[t].storage.index] = t;
        if (!list.empty() && list.back().node == v) {
          list.back().makes |= makes;
        } else {
          list.push_back({v, makes});
        }
      };
      for (const TensorId t : op.inputs) note(t, false);
      for (const TensorId t : op.outputs) note(t, true);
    }
    for (std::uint32_t s = 0; s < uses.size(); ++s) {
      if (!uses[s].empty()) add_value(uses[s], last[s]);
    }
  }

  void add_value(const std::vector<StorageUse>& uses, TensorId last) {
    OpDag& dag = made_.dag;
    const std::int64_t bytes = graph_[last].bytes.count;
    const auto is_maker = [](const StorageUse& use) { return use.makes; };
    const auto final = std::find_if(uses.rbegin(), uses.rend(), is_maker);
    DagValue value{.maker = final == uses.rend() ? no_node : final->node, .bytes = bytes, .readers = {}};
    const auto first = std::ranges::find_if(uses, is_maker);
    if (final != uses.rend() && (first->node != final->node || first != uses.begin())) {  // overwritten in place
      const bool is_given = first != uses.begin();
      DagValue before{.maker = is_given ? no_node : first->node, .bytes = bytes, .readers = {}};
      for (auto use = is_given ? uses.begin() : uses.begin() + 1; use != final.base(); ++use) {
        before.readers.push_back(use->node);
      }
      for (auto use = uses.begin(); use != final.base(); ++use) {
        one_processor_.emplace_back(uses.front().node, use->node);
        if (use != uses.begin()) orders_.emplace_back(std::prev(use)->node, use->node);
      }
      dag.values.push_back(std::move(before));
      made_.tensor.push_back(last);
    }
    for (auto use = final == uses.rend() ? uses.begin() : final.base(); use != uses.end(); ++use) {
      value.readers.push_back(use->node);
    }
    dag.values.push_back(std::move(value));
    made_.tensor.push_back(last);
  }

  /// Parameters where they are read, gradients where they are made, states where the gradient is made first.
  void find_residents() {
    std::vector<std::vector<std::uint32_t>> users(graph_.tensors.size());
    for (std::uint32_t v = 0; v < made_.dag.size; ++v) {
      const Op& op = graph_[made_.op[v]];
      const auto note = [&](TensorId t) {
        if (per_micro_batch(graph_[t].kind)) return;
        refuse_on_host(op, t);
        users[t.index].push_back(v);
      };
      for (const TensorId t : op.inputs) {
        if (graph_[t].kind == TensorKind::parameter) note(t);
      }
      for (const TensorId t : op.outputs) {
        if (graph_[t].kind == TensorKind::parameter_gradient) note(t);
      }
    }
    for (const Op& op : graph_.ops) {
      if (op.phase != Phase::update) continue;
      std::uint32_t updater = no_node;
      for (const TensorId t : op.inputs) {
        const bool is_gradient = graph_[t].kind == TensorKind::parameter_gradient;
        if (is_gradient && !users[t.index].empty()) updater = std::min(updater, users[t.index].front());
      }
      for (const TensorId t : op.inputs) {
        if (graph_[t].kind == TensorKind::optimizer_state && updater != no_node) users[t.index] = {updater};
      }
    }
    if (homes_ == ParameterHomes::together) keep_together(users);
    for (std::uint32_t t = 0; t < users.size(); ++t) {
      if (users[t].empty()) continue;
      users[t].erase(std::unique(users[t].begin(), users[t].end()), users[t].end());
      const bool appears =
          graph_.tensors[t].kind == TensorKind::parameter_gradient && problem_.gradients == Gradients::fresh;
      made_.dag.residents.push_back(
          {.bytes = graph_.tensors[t].bytes.count, .users = std::move(users[t]), .appears = appears});
    }
  }

  /// Users of a parameter, and of its gradient, as the trace or an update names it.
  void keep_together(const std::vector<std::vector<std::uint32_t>>& users) {
    const auto join = [&](TensorId a, TensorId b) {
      if (users[a.index].empty()) return;
      for (const std::uint32_t v : users[b.index]) one_processor_.emplace_back(users[a.index].front(), v);
    };
    for (std::uint32_t t = 0; t < users.size(); ++t) {
      if (graph_.tensors[t].kind == TensorKind::optimizer_state) continue;
      join(TensorId{t}, TensorId{t});
      if (graph_.tensors[t].gradient_of) join(*graph_.tensors[t].gradient_of, TensorId{t});
    }
    for (const Op& op : graph_.ops) {
      if (op.phase != Phase::update) continue;
      for (const TensorId a : op.inputs) {
        for (const TensorId b : op.inputs) {
          const bool is_pair =
              graph_[a].kind == TensorKind::parameter && graph_[b].kind == TensorKind::parameter_gradient;
          if (is_pair) join(a, b);
        }
      }
    }
  }

  void refuse_on_host(const Op& op, TensorId t) const {
    if (!is_pinned_to_host(op)) return;
    throw InputError(
        fmt::format("'{}' is pinned to the host and uses '{}': parameters and their gradients are on devices", op.name,
                    graph_[t].name));
  }

  void find_groups() {
    OpDag& dag = made_.dag;
    Sets sets(dag.size);
    for (const std::vector<OpId>& group : graph_.colocate) {
      std::uint32_t first = no_node;
      for (const OpId op : group) {
        const std::uint32_t v = node_of_[op.index];
        if (v == no_node) continue;
        if (first == no_node) first = v;
        sets.join(first, v);
      }
    }
    for (const auto& [a, b] : one_processor_) sets.join(a, b);
    std::vector<std::vector<std::uint32_t>> members(dag.size);
    for (std::uint32_t v = 0; v < dag.size; ++v) members[sets.find(v)].push_back(v);
    dag.group.assign(dag.size, no_node);
    for (std::vector<std::uint32_t>& group : members) {
      if (group.size() < 2) continue;
      for (const std::uint32_t v : group) dag.group[v] = static_cast<std::uint32_t>(dag.together.size());
      dag.together.push_back(std::move(group));
    }
    for (std::vector<Nanoseconds>& times : dag.time) {
      for (const std::vector<std::uint32_t>& group : dag.together) {
        const auto is_impossible = [&](std::uint32_t v) { return times[v] == cannot_run; };
        if (!std::ranges::any_of(group, is_impossible)) continue;
        refuse_torn(group);
        for (const std::uint32_t v : group) times[v] = cannot_run;
      }
    }
  }

  void refuse_torn(const std::vector<std::uint32_t>& group) const {
    const auto is_pinned = [&](std::uint32_t v) { return is_pinned_to_host(graph_[made_.op[v]]); };
    const auto pinned = std::ranges::find_if(group, is_pinned), other = std::ranges::find_if_not(group, is_pinned);
    if (pinned == group.end() || other == group.end()) return;
    throw InputError(fmt::format("'{}' is pinned to the host and must be where '{}' is, which is not",
                                 graph_[made_.op[*pinned]].name, graph_[made_.op[*other]].name));
  }

  /// Edges from what nodes read, those between the same two as one.
  void connect() {
    OpDag& dag = made_.dag;
    dag.makes.resize(dag.size);
    dag.reads.resize(dag.size);
    for (std::uint32_t value = 0; value < dag.values.size(); ++value) {
      if (dag.values[value].maker != no_node) dag.makes[dag.values[value].maker].push_back(value);
      for (const std::uint32_t v : dag.values[value].readers) dag.reads[v].push_back(value);
    }
    std::vector<std::vector<std::uint32_t>> before(dag.size);
    for (const auto& [a, b] : orders_) before[b].push_back(a);
    std::vector<std::vector<DagEdge>> out(dag.size);
    std::vector<DagEdge> in;
    for (std::uint32_t v = 0; v < dag.size; ++v) {
      in.clear();
      for (const std::uint32_t value : dag.reads[v]) {
        if (dag.values[value].maker != no_node) in.push_back({dag.values[value].maker, dag.values[value].bytes, true});
      }
      for (const std::uint32_t u : before[v]) in.push_back({u, 0, false});
      std::ranges::sort(in, {}, &DagEdge::node);
      for (const DagEdge& edge : in) {
        EXPECTS(edge.node < v);
        const bool is_new = dag.in.items.size() == dag.in.first.back() || dag.in.items.back().node != edge.node;
        if (is_new) {
          dag.in.items.push_back(edge);
        } else {
          dag.in.items.back().bytes += edge.bytes;
          dag.in.items.back().sends |= edge.sends;
        }
      }
      for (std::size_t e = dag.in.first.back(); e < dag.in.items.size(); ++e) {
        const DagEdge& edge = dag.in.items[e];
        out[edge.node].push_back({v, edge.bytes, edge.sends});
      }
      dag.in.end_row();
    }
    for (const std::vector<DagEdge>& row : out) {
      dag.out.items.insert(dag.out.items.end(), row.begin(), row.end());
      dag.out.end_row();
    }
  }

  const Problem& problem_;
  const Graph& graph_;
  ParameterHomes homes_;
  GraphDag made_;
  std::vector<std::uint32_t> node_of_;                                  // by op
  std::vector<std::pair<std::uint32_t, std::uint32_t>> one_processor_;  // nodes that share one
  std::vector<std::pair<std::uint32_t, std::uint32_t>> orders_;         // of those, the first before the second
};

/// With the first part, whichever that is.
std::int64_t bytes_of_unread(const Graph& graph) {
  std::int64_t bytes = 0;
  for (const TensorId t : unread_parameters(graph)) bytes += graph[t].bytes.count;
  return bytes;
}

/// The next of the pairs of processors.
void add_way(Machine& machine, const Platform& platform, RouteFinder& routes, MemoryId from, MemoryId to) {
  constexpr double per_second = 1e9;
  if (from == to) {
    machine.latency.push_back(0);
    machine.nanoseconds_per_byte.push_back(0);
    return;
  }
  const std::optional<Route> route = routes.between(from, to);
  if (!route) {
    throw InputError(fmt::format("no route between '{}' and '{}' of platform '{}'", platform[from].name,
                                 platform[to].name, platform.name));
  }
  machine.latency.push_back(nanoseconds(route->latency));
  machine.nanoseconds_per_byte.push_back(per_second / route->bandwidth.value);
}

std::int64_t filled(std::int64_t budget, double usable) {
  return static_cast<std::int64_t>(usable * static_cast<double>(budget));
}

}  // namespace

GraphDag graph_dag(const Problem& problem, std::uint32_t devices, ParameterHomes homes) {
  return DagBuilder(problem, devices, homes).build();
}

Machine machine_of(const Problem& problem, const GraphDag& graph, std::optional<Bytes> budget, double usable) {
  const Platform& platform = problem.platform;
  Machine machine;
  machine.class_of = graph.classes.of;
  const std::int64_t unread = bytes_of_unread(problem.graph);
  std::vector<MemoryId> memories;
  for (std::uint32_t d = 0; d < graph.classes.of.size(); ++d) {
    memories.push_back(platform.devices[d].memory);
    std::optional<Bytes> most = platform[memories.back()].capacity;
    if (budget) most = most ? std::min(*most, *budget) : *budget;
    machine.memory.push_back(most ? std::max<std::int64_t>(0, filled(most->count, usable) - unread) : unlimited_bytes);
  }
  if (graph.has_host) {
    const std::optional<MemoryId> host = memory_at(platform, DeviceId{0}, place::host);
    if (!host) throw InputError(fmt::format("ops are pinned to the host, and platform '{}' has none", platform.name));
    machine.class_of.push_back(static_cast<std::uint32_t>(graph.classes.one.size()));
    machine.memory.push_back(platform[*host].capacity.value_or(Bytes{unlimited_bytes}).count);
    memories.push_back(*host);
    machine.has_host = true;
  }
  RouteFinder routes(platform);
  for (const MemoryId from : memories) {
    for (const MemoryId to : memories) add_way(machine, platform, routes, from, to);
  }
  find_means(machine);
  return machine;
}

Bytes budget_that_leaves(const Problem& problem, Bytes asked, double usable) {
  const std::int64_t needed = asked.count + bytes_of_unread(problem.graph);
  auto budget = static_cast<std::int64_t>(static_cast<double>(needed) / usable);
  while (budget > 0 && filled(budget - 1, usable) >= needed) --budget;
  while (filled(budget, usable) < needed) ++budget;
  return Bytes{budget};
}

}  // namespace plimsoll
