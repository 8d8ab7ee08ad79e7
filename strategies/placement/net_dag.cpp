#include "strategies/placement/net_dag.h"

#include <algorithm>
#include <numeric>
#include <queue>

#include "sim/core/expects.h"

namespace plimsoll {
namespace {

/// By vertex: the first of its strongly connected component, found by Tarjan's depth-first search.
class StrongComponents {
 public:
  explicit StrongComponents(const NetDag& dag)
      : dag_(dag), index_(dag.size(), no_node), low_(dag.size()), of_(dag.size(), no_node) {}

  std::vector<std::uint32_t> find() && {
    for (std::uint32_t v = 0; v < dag_.size(); ++v) {
      if (index_[v] == no_node) search(v);
    }
    return std::move(of_);
  }

 private:
  struct Visit {
    std::uint32_t vertex = 0;
    std::size_t net = 0, reader = 0;  // what comes next
  };

  void enter(std::uint32_t v) {
    index_[v] = low_[v] = entered_++;
    open_.push_back(v);
    visits_.push_back({v});
  }

  void search(std::uint32_t root) {
    enter(root);
    while (!visits_.empty()) {
      Visit& visit = visits_.back();
      const std::uint32_t v = visit.vertex;
      const auto nets = dag_.makes[v];
      if (visit.net < nets.size()) {
        const auto readers = dag_.readers[nets[visit.net]];
        if (visit.reader == readers.size()) {
          ++visit.net;
          visit.reader = 0;
          continue;
        }
        const std::uint32_t w = readers[visit.reader++];
        if (index_[w] == no_node) {
          enter(w);
        } else if (of_[w] == no_node) {
          low_[v] = std::min(low_[v], index_[w]);
        }
        continue;
      }
      visits_.pop_back();
      if (!visits_.empty()) low_[visits_.back().vertex] = std::min(low_[visits_.back().vertex], low_[v]);
      if (low_[v] == index_[v]) close(v);
    }
  }

  void close(std::uint32_t v) {
    std::uint32_t last = no_node;
    do {
      last = open_.back();
      open_.pop_back();
      of_[last] = v;
    } while (last != v);
  }

  const NetDag& dag_;
  std::vector<std::uint32_t> index_, low_, of_, open_;
  std::vector<Visit> visits_;
  std::uint32_t entered_ = 0;
};

/// Nets between clusters that are numbered somehow; several of one maker with the same readers become one.
class ClusterNets {
 public:
  ClusterNets(const NetDag& dag, std::span<const std::uint32_t> of, std::uint32_t clusters) : made_() {
    made_.weight.assign(clusters, 0);
    for (std::uint32_t v = 0; v < dag.size(); ++v) made_.weight[of[v]] += dag.weight[v];
    std::vector<std::vector<std::uint32_t>> nets(clusters);  // by cluster that makes them
    for (std::uint32_t n = 0; n < dag.nets(); ++n) nets[of[dag.maker[n]]].push_back(n);
    for (std::uint32_t c = 0; c < clusters; ++c) {
      std::vector<Pending> own;
      for (const std::uint32_t n : nets[c]) {
        Pending net{dag.bytes[n], {}};
        for (const std::uint32_t r : dag.readers[n]) {
          if (of[r] != c) net.readers.push_back(of[r]);
        }
        if (net.readers.empty()) continue;
        std::ranges::sort(net.readers);
        net.readers.erase(std::unique(net.readers.begin(), net.readers.end()), net.readers.end());
        own.push_back(std::move(net));
      }
      std::ranges::stable_sort(own, {}, &Pending::readers);
      for (std::size_t i = 0; i < own.size(); ++i) {
        if (i > 0 && own[i].readers == own[i - 1].readers) {
          made_.bytes.back() += own[i].bytes;
          continue;
        }
        made_.maker.push_back(c);
        made_.bytes.push_back(own[i].bytes);
        made_.readers.items.insert(made_.readers.items.end(), own[i].readers.begin(), own[i].readers.end());
        made_.readers.end_row();
      }
    }
    list_nets(made_);
  }

  NetDag made() && { return std::move(made_); }

 private:
  struct Pending {
    std::int64_t bytes = 0;
    std::vector<std::uint32_t> readers;
  };
  NetDag made_;
};

/// By vertex: its place in an order that all nets keep; of those that may come next the smallest number.
std::vector<std::uint32_t> places(const NetDag& dag) {
  std::vector<std::size_t> waits(dag.size());
  std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> ready;
  for (std::uint32_t v = 0; v < dag.size(); ++v) {
    waits[v] = dag.reads[v].size();
    if (waits[v] == 0) ready.push(v);
  }
  std::vector<std::uint32_t> place(dag.size(), no_node);
  std::uint32_t next = 0;
  while (!ready.empty()) {
    const std::uint32_t v = ready.top();
    ready.pop();
    place[v] = next++;
    for (const std::uint32_t n : dag.makes[v]) {
      for (const std::uint32_t r : dag.readers[n]) {
        if (--waits[r] == 0) ready.push(r);
      }
    }
  }
  EXPECTS(next == dag.size());
  return place;
}

}  // namespace

void list_nets(NetDag& dag) {
  const auto rows = [&](auto each) {
    Rows<std::uint32_t> made;
    made.first.assign(dag.size() + 1, 0);
    each([&](std::uint32_t v, std::uint32_t) { ++made.first[v + 1]; });
    std::partial_sum(made.first.begin(), made.first.end(), made.first.begin());
    made.items.resize(made.first.back());
    std::vector<std::uint32_t> at = made.first;
    each([&](std::uint32_t v, std::uint32_t n) { made.items[at[v]++] = n; });
    return made;
  };
  dag.makes = rows([&](auto note) {
    for (std::uint32_t n = 0; n < dag.nets(); ++n) note(dag.maker[n], n);
  });
  dag.reads = rows([&](auto note) {
    for (std::uint32_t n = 0; n < dag.nets(); ++n) {
      for (const std::uint32_t r : dag.readers[n]) note(r, n);
    }
  });
}

NetContraction without_circles(const NetDag& any) {
  return contracted(any, StrongComponents(any).find());
}

NetContraction contracted(const NetDag& dag, std::span<const std::uint32_t> cluster) {
  NetContraction made;
  std::vector<std::uint32_t> number(dag.size(), no_node);  // by name of a cluster, by the first vertex
  std::uint32_t clusters = 0;
  for (std::uint32_t v = 0; v < dag.size(); ++v) {
    if (number[cluster[v]] == no_node) number[cluster[v]] = clusters++;
    made.of.push_back(number[cluster[v]]);
  }
  const NetDag unordered = ClusterNets(dag, made.of, clusters).made();
  const std::vector<std::uint32_t> place = places(unordered);
  for (std::uint32_t& each : made.of) each = place[each];
  made.dag = unordered;
  for (std::uint32_t c = 0; c < clusters; ++c) made.dag.weight[place[c]] = unordered.weight[c];
  for (std::uint32_t& maker : made.dag.maker) maker = place[maker];
  for (std::uint32_t n = 0; n < made.dag.nets(); ++n) {
    const std::size_t first = made.dag.readers.first[n], end = made.dag.readers.first[n + 1];
    for (std::size_t i = first; i < end; ++i) made.dag.readers.items[i] = place[made.dag.readers.items[i]];
    std::ranges::sort(std::span(made.dag.readers.items).subspan(first, end - first));
  }
  list_nets(made.dag);
  return made;
}

}  // namespace plimsoll
