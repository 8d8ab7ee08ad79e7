// Source: Jeon et al., "Baechi: fast device placement of machine learning graphs", SoCC 2020. There groups grow without
// limit; here not over a processor's share of the time, since the backward of a model without branches, where each op
// has one reader, would be one group else.

#include "strategies/placement/baechi/baechi_fusion.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <queue>
#include <set>
#include <tuple>
#include <vector>

#include "sim/core/expects.h"
#include "strategies/placement/op_dag.h"

namespace plimsoll {
namespace {

/// Each set is called by one of its nodes.
class NodeSets {
 public:
  explicit NodeSets(std::uint32_t size) : parent_(size) { std::iota(parent_.begin(), parent_.end(), 0u); }

  std::uint32_t find(std::uint32_t v) {
    while (parent_[v] != v) v = parent_[v] = parent_[parent_[v]];
    return v;
  }
  void join(std::uint32_t into, std::uint32_t other) { parent_[other] = into; }

 private:
  std::vector<std::uint32_t> parent_;
};

/// By node: a number for the set of classes that can run it.
std::vector<std::size_t> runnable_kinds(const OpDag& dag) {
  std::map<std::vector<bool>, std::size_t> known;
  std::vector<std::size_t> kind(dag.size);
  std::vector<bool> runs(dag.time.size());
  for (std::uint32_t v = 0; v < dag.size; ++v) {
    for (std::size_t c = 0; c < dag.time.size(); ++c) runs[c] = dag.time[c][v] != cannot_run;
    kind[v] = known.try_emplace(runs, known.size()).first->second;
  }
  return kind;
}

/// The only node that reads what it makes; no_node: none or several.
std::uint32_t only_reader(const OpDag& dag, std::uint32_t v) {
  std::uint32_t reader = no_node;
  for (const DagEdge& edge : dag.out[v]) {
    if (!edge.sends) continue;
    if (reader != no_node) return no_node;
    reader = edge.node;
  }
  return reader;
}

// Source: Jeon et al., "Baechi: fast device placement of machine learning graphs", SoCC 2020. There the workspace of a
// fused op is the largest of its ops, and what they hand to each other takes none.

/// Contracts edges inside groups until none is left that surely makes no circle.
class Contraction {
 public:
  Contraction(const OpDag& dag, const std::vector<std::uint32_t>& group)
      : group_(group), sets_(dag.size), out_(dag.size), in_(dag.size) {
    for (std::uint32_t v = 0; v < dag.size; ++v) {
      for (const DagEdge& edge : dag.out[v]) out_[v].insert(out_[v].end(), edge.node);
      for (const DagEdge& edge : dag.in[v]) in_[v].insert(in_[v].end(), edge.node);
      changed_.push(v);
    }
  }

  /// By node: the node that stands for all that it is fused with.
  std::vector<std::uint32_t> run() && {
    for (; !changed_.empty(); changed_.pop()) {
      const std::uint32_t v = sets_.find(changed_.front());
      if (out_[v].size() == 1 && group_[*out_[v].begin()] == group_[v]) {
        merge(v, *out_[v].begin());
      } else if (in_[v].size() == 1 && group_[*in_[v].begin()] == group_[v]) {
        merge(*in_[v].begin(), v);
      }
    }
    std::vector<std::uint32_t> stands(group_.size());
    for (std::uint32_t v = 0; v < stands.size(); ++v) stands[v] = sets_.find(v);
    return stands;
  }

 private:
  using Neighbours = std::vector<std::set<std::uint32_t>>;

  void merge(std::uint32_t from, std::uint32_t to) {
    out_[from].erase(to);
    in_[to].erase(from);
    const bool keeps_first = out_[from].size() + in_[from].size() >= out_[to].size() + in_[to].size();
    const std::uint32_t kept = keeps_first ? from : to, gone = keeps_first ? to : from;
    move_edges(out_, in_, kept, gone);
    move_edges(in_, out_, kept, gone);
    sets_.join(kept, gone);
    changed_.push(kept);
  }

  void move_edges(Neighbours& here, Neighbours& there, std::uint32_t kept, std::uint32_t gone) {
    for (const std::uint32_t other : here[gone]) {
      there[other].erase(gone);
      if (!there[other].insert(kept).second) changed_.push(other);
      here[kept].insert(other);
    }
    here[gone].clear();
  }

  const std::vector<std::uint32_t>& group_;
  NodeSets sets_;
  Neighbours out_, in_;
  std::queue<std::uint32_t> changed_;
};

/// Fused nodes in a valid order, the one with the smallest node first among those that may come next.
std::vector<std::vector<std::uint32_t>> in_valid_order(const OpDag& dag, const std::vector<std::uint32_t>& stands) {
  std::vector<std::vector<std::uint32_t>> members(dag.size);
  std::vector<std::size_t> waits(dag.size, 0);
  for (std::uint32_t v = 0; v < dag.size; ++v) {
    members[stands[v]].push_back(v);
    for (const DagEdge& edge : dag.out[v]) {
      if (stands[edge.node] != stands[v]) ++waits[stands[edge.node]];
    }
  }
  using Ready = std::pair<std::uint32_t, std::uint32_t>;  // its smallest node, what stands for it
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready;
  const auto may_come = [&](std::uint32_t s) { ready.push({members[s].front(), s}); };
  for (std::uint32_t s = 0; s < dag.size; ++s) {
    if (stands[s] == s && waits[s] == 0) may_come(s);
  }
  std::vector<std::vector<std::uint32_t>> ordered;
  while (!ready.empty()) {
    const std::uint32_t s = ready.top().second;
    ready.pop();
    for (const std::uint32_t v : members[s]) {
      for (const DagEdge& edge : dag.out[v]) {
        const std::uint32_t next = stands[edge.node];
        if (next != s && --waits[next] == 0) may_come(next);
      }
    }
    ordered.push_back(std::move(members[s]));
  }
  return ordered;
}

/// Fills a fused graph from the one it stands for.
class Fusing {
 public:
  Fusing(const OpDag& from, std::vector<std::vector<std::uint32_t>> members) : from_(from), node_(from.size) {
    made_.members = std::move(members);
    made_.dag.size = static_cast<std::uint32_t>(made_.members.size());
    for (std::uint32_t f = 0; f < made_.dag.size; ++f) {
      for (const std::uint32_t v : made_.members[f]) node_[v] = f;
    }
  }

  FusedDag run(const std::vector<std::uint32_t>& group) && {
    add_times();
    add_values();
    add_workspaces();
    add_edges();
    for (const DagResident& resident : from_.residents) {
      made_.dag.residents.push_back({resident.bytes, fused_nodes(resident.users), resident.appears});
    }
    add_groups(group);
    return std::move(made_);
  }

 private:
  std::vector<std::uint32_t> fused_nodes(std::span<const std::uint32_t> nodes) const {
    std::vector<std::uint32_t> found;
    for (const std::uint32_t v : nodes) found.push_back(node_[v]);
    std::ranges::sort(found);
    found.erase(std::unique(found.begin(), found.end()), found.end());
    return found;
  }

  void add_times() {
    for (const std::vector<Nanoseconds>& times : from_.time) {
      std::vector<Nanoseconds>& sums = made_.dag.time.emplace_back();
      for (const std::vector<std::uint32_t>& members : made_.members) {
        Nanoseconds sum = 0;
        for (const std::uint32_t v : members) {
          sum = sum == cannot_run || times[v] == cannot_run ? cannot_run : sum + times[v];
        }
        sums.push_back(sum);
      }
    }
  }

  /// Those that leave their fused node; the others become a part of its workspace.
  void add_values() {
    OpDag& dag = made_.dag;
    dag.makes.resize(dag.size);
    dag.reads.resize(dag.size);
    for (const DagValue& value : from_.values) {
      const std::uint32_t maker = value.maker == no_node ? no_node : node_[value.maker];
      std::vector<std::uint32_t> readers = fused_nodes(value.readers);
      std::erase(readers, maker);
      if (readers.empty()) continue;
      const auto number = static_cast<std::uint32_t>(dag.values.size());
      if (maker != no_node) dag.makes[maker].push_back(number);
      for (const std::uint32_t reader : readers) dag.reads[reader].push_back(number);
      dag.values.push_back({maker, value.bytes, std::move(readers)});
    }
  }

  void add_workspaces() {
    std::vector<std::size_t> position(from_.size);
    for (const std::vector<std::uint32_t>& members : made_.members) {
      for (std::size_t at = 0; at < members.size(); ++at) position[members[at]] = at;
      std::vector<std::int64_t> change(members.size() + 1, 0);  // of inner values, before each member
      for (std::size_t at = 0; at < members.size(); ++at) {
        for (const std::uint32_t number : from_.makes[members[at]]) {
          const DagValue& value = from_.values[number];
          std::size_t last = at;
          bool leaves = false;
          for (const std::uint32_t reader : value.readers) {
            leaves = leaves || node_[reader] != node_[members[at]];
            if (!leaves) last = std::max(last, position[reader]);
          }
          if (leaves) continue;
          change[at] += value.bytes;
          change[last + 1] -= value.bytes;
        }
      }
      std::int64_t inner = 0, most = 0;
      for (std::size_t at = 0; at < members.size(); ++at) {
        inner += change[at];
        most = std::max(most, inner + from_.workspace[members[at]]);
      }
      made_.dag.workspace.push_back(most);
    }
  }

  void add_edges() {
    OpDag& dag = made_.dag;
    struct Edge {
      std::uint32_t from, to;
      std::int64_t bytes;
      bool sends;
    };
    std::vector<Edge> edges;
    for (std::uint32_t v = 0; v < from_.size; ++v) {
      for (const DagEdge& edge : from_.out[v]) {
        if (node_[v] != node_[edge.node]) edges.push_back({node_[v], node_[edge.node], 0, edge.sends});
      }
    }
    for (const DagValue& value : dag.values) {
      if (value.maker == no_node) continue;
      for (const std::uint32_t reader : value.readers) edges.push_back({value.maker, reader, value.bytes, true});
    }
    const auto ends = [](const Edge& e) { return std::tie(e.from, e.to); };
    std::ranges::stable_sort(edges, [&](const Edge& a, const Edge& b) { return ends(a) < ends(b); });
    std::vector<Edge> merged;
    for (const Edge& edge : edges) {
      if (merged.empty() || ends(merged.back()) != ends(edge)) {
        merged.push_back(edge);
      } else {
        merged.back().bytes += edge.bytes;
        merged.back().sends = merged.back().sends || edge.sends;
      }
    }
    std::vector<std::vector<DagEdge>> in(dag.size);
    std::size_t next = 0;
    for (std::uint32_t f = 0; f < dag.size; ++f) {
      for (; next < merged.size() && merged[next].from == f; ++next) {
        EXPECTS(merged[next].to > f);
        dag.out.items.push_back({merged[next].to, merged[next].bytes, merged[next].sends});
        in[merged[next].to].push_back({f, merged[next].bytes, merged[next].sends});
      }
      dag.out.end_row();
    }
    for (const std::vector<DagEdge>& row : in) {
      dag.in.items.insert(dag.in.items.end(), row.begin(), row.end());
      dag.in.end_row();
    }
  }

  void add_groups(const std::vector<std::uint32_t>& group) {
    std::map<std::uint32_t, std::vector<std::uint32_t>> nodes;  // by group
    for (std::uint32_t f = 0; f < made_.dag.size; ++f) nodes[group[made_.members[f].front()]].push_back(f);
    made_.dag.group.assign(made_.dag.size, no_node);
    for (auto& [number, together] : nodes) {
      if (together.size() < 2) continue;
      for (const std::uint32_t f : together) {
        made_.dag.group[f] = static_cast<std::uint32_t>(made_.dag.together.size());
      }
      made_.dag.together.push_back(std::move(together));
    }
  }

  const OpDag& from_;
  std::vector<std::uint32_t> node_;  // by node of `from`: its fused node
  FusedDag made_;
};

}  // namespace

std::vector<std::uint32_t> co_placed(const OpDag& dag, const Machine& machine) {
  NodeSets sets(dag.size);
  std::vector<Nanoseconds> time = mean_times(dag, machine);
  std::vector<std::int64_t> resident(dag.size, 0);
  const auto join = [&](std::uint32_t a, std::uint32_t b) {
    const std::uint32_t into = std::min(a, b), other = std::max(a, b);
    if (into == other) return;
    time[into] += time[other];
    resident[into] += resident[other];
    sets.join(into, other);
  };
  const Nanoseconds share =
      std::accumulate(time.begin(), time.end(), Nanoseconds{0}) / static_cast<Nanoseconds>(machine.size());
  const std::int64_t most_bytes = std::ranges::max(machine.memory);
  for (const std::vector<std::uint32_t>& group : dag.together) {
    for (const std::uint32_t v : group) join(sets.find(group.front()), sets.find(v));
  }
  for (const DagResident& each : dag.residents) {
    std::uint32_t before = no_node;
    for (const std::uint32_t v : each.users) {
      const std::uint32_t set = sets.find(v);
      if (set != before) resident[set] += each.bytes;
      before = set;
    }
  }
  const std::vector<std::size_t> kind = runnable_kinds(dag);
  for (std::uint32_t v = 0; v < dag.size; ++v) {
    const std::uint32_t reader = only_reader(dag, v);
    if (reader == no_node || kind[v] != kind[reader]) continue;
    const std::uint32_t a = sets.find(v), b = sets.find(reader);
    if (a == b || time[a] + time[b] > share || resident[a] + resident[b] > most_bytes) continue;
    join(a, b);
  }
  std::vector<std::uint32_t> group(dag.size);
  for (std::uint32_t v = 0; v < dag.size; ++v) group[v] = sets.find(v);
  return group;
}

FusedDag fused(const OpDag& dag, const std::vector<std::uint32_t>& group) {
  return Fusing(dag, in_valid_order(dag, Contraction(dag, group).run())).run(group);
}

}  // namespace plimsoll
