#include "traces/imports/edge_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <span>

namespace plimsoll {
namespace {

constexpr std::uint32_t no_named_op = 0xFFFFFFFF;

/// The edges that leave or enter each op, by number, in the order of the list.
struct Incidence {
  std::vector<std::uint32_t> first, edges;

  Incidence(const EdgeList& list, std::uint32_t ListedEdge::*end) : first(list.ops.size() + 1, 0) {
    for (const ListedEdge& edge : list.edges) ++first[edge.*end + 1];
    for (std::size_t v = 1; v < first.size(); ++v) first[v] += first[v - 1];
    edges.resize(list.edges.size());
    std::vector<std::uint32_t> next(first.begin(), first.end() - 1);
    for (std::uint32_t e = 0; e < list.edges.size(); ++e) edges[next[list.edges[e].*end]++] = e;
  }

  std::span<const std::uint32_t> operator[](std::uint32_t op) const {
    return std::span(edges).subspan(first[op], first[op + 1] - first[op]);
  }
};

class ListedGraph {
 public:
  ListedGraph(EdgeList list, Complaints& complaints)
      : list_(std::move(list)),
        complaints_(complaints),
        out_(list_, &ListedEdge::from),
        in_(list_, &ListedEdge::to),
        tensor_of_(list_.edges.size()) {}

  Graph graph() && {
    complain_about_sizes();
    complain_about_repeated_edges();
    const std::vector<std::uint32_t> order = valid_order();
    complaints_.throw_if_any();
    made_.name = list_.name;
    made_.source.notes = list_.notes;
    for (const std::uint32_t op : order) add_op(op);
    std::map<std::uint32_t, std::vector<OpId>> groups;
    for (std::uint32_t position = 0; position < order.size(); ++position) {
      if (const auto& together = list_.ops[order[position]].together) groups[*together].push_back(OpId{position});
    }
    for (auto& [number, group] : groups) {
      if (group.size() > 1) made_.colocate.push_back(std::move(group));
    }
    return std::move(made_);
  }

 private:
  const std::string& name(std::uint32_t op) const { return list_.ops[op].name; }

  /// Bytes are added up everywhere: together they stay below 2^62, as in a trace's file.
  void complain_about_sizes() {
    constexpr std::int64_t most = std::int64_t{1} << 62;
    std::int64_t sum = 0;
    const auto add = [&](Bytes bytes) { sum = std::min(most, sum) + bytes.count; };
    for (const ListedOp& op : list_.ops) {
      add(op.parameters);
      add(op.output.value_or(Bytes{}));
    }
    for (const ListedEdge& edge : list_.edges) add(edge.bytes.value_or(Bytes{}));
    if (sum >= most) complaints_.add({}, "", "absurdly large: the sum of all sizes does not fit 62 bits");
  }

  void complain_about_repeated_edges() {
    std::vector<std::uint32_t> seen_from(list_.ops.size(), no_named_op);
    for (std::uint32_t v = 0; v < list_.ops.size(); ++v) {
      for (const std::uint32_t e : out_[v]) {
        const ListedEdge& edge = list_.edges[e];
        if (seen_from[edge.to] == v) {
          complaints_.add(edge.place, "", fmt::format("a second edge from '{}' to '{}'", name(v), name(edge.to)));
        }
        seen_from[edge.to] = v;
      }
    }
  }

  /// Of the ops that could be next, the first of the list. Complains about a circle where some never can.
  std::vector<std::uint32_t> valid_order() {
    std::vector<std::uint32_t> waits(list_.ops.size(), 0), order;
    for (const ListedEdge& edge : list_.edges) ++waits[edge.to];
    std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> ready;
    for (std::uint32_t v = 0; v < waits.size(); ++v) {
      if (waits[v] == 0) ready.push(v);
    }
    while (!ready.empty()) {
      const std::uint32_t v = ready.top();
      ready.pop();
      order.push_back(v);
      for (const std::uint32_t e : out_[v]) {
        if (--waits[list_.edges[e].to] == 0) ready.push(list_.edges[e].to);
      }
    }
    if (order.size() < list_.ops.size()) complain_about_circle(waits);
    return order;
  }

  /// Walks backwards along ops that wait for others until one comes again.
  void complain_about_circle(const std::vector<std::uint32_t>& waits) {
    const auto is_stuck = [&](std::uint32_t v) { return waits[v] > 0; };
    const auto stuck_edge_to = [&](std::uint32_t v) {
      const auto edges = in_[v];
      return *std::ranges::find_if(edges, [&](std::uint32_t e) { return is_stuck(list_.edges[e].from); });
    };
    std::uint32_t v = 0;
    while (!is_stuck(v)) ++v;
    std::vector<bool> seen(list_.ops.size(), false);
    for (; !seen[v]; v = list_.edges[stuck_edge_to(v)].from) seen[v] = true;
    std::vector<std::uint32_t> circle;  // edges, the last one first
    std::uint32_t at = v;
    do {
      circle.push_back(stuck_edge_to(at));
      at = list_.edges[circle.back()].from;
    } while (at != v);
    const auto first = std::ranges::min_element(circle);  // begin with the edge that comes first in the file
    std::rotate(circle.begin(), first + 1, circle.end());
    std::ranges::reverse(circle);
    constexpr std::size_t most = 8;
    std::string names;
    for (std::size_t k = 0; k < circle.size() && k < most; ++k) {
      names += fmt::format("'{}' -> ", name(list_.edges[circle[k]].from));
    }
    if (circle.size() > most) names += "... -> ";
    const ListedEdge& edge = list_.edges[circle.front()];
    complaints_.add(edge.place, "", fmt::format("cyclic, no order exists: {}'{}'", names, name(edge.from)));
  }

  TensorId add_tensor(std::string tensor, TensorKind kind, Bytes bytes) {
    const auto made = id_at<TensorId>(made_.tensors.size());
    made_.tensors.push_back({.name = std::move(tensor),
                             .kind = kind,
                             .bytes = bytes,
                             .storage = id_at<StorageId>(made_.storages++),
                             .shape = {},
                             .dtype = {}});
    return made;
  }

  void add_op(std::uint32_t v) {
    ListedOp& listed = list_.ops[v];
    Op op;
    op.name = listed.name;
    op.phase = listed.phase;
    op.duration = listed.time;
    op.attributes = std::move(listed.attributes);
    for (const std::uint32_t e : in_[v]) op.inputs.push_back(tensor_of_[e]);
    if (listed.parameters > Bytes{}) {
      op.inputs.push_back(
          add_tensor(fmt::format("parameters of {}", listed.name), TensorKind::parameter, listed.parameters));
    }
    const TensorKind kind = is_backward(listed.phase) ? TensorKind::gradient : TensorKind::activation;
    const auto make = [&](Bytes bytes) {
      std::string tensor = op.outputs.empty() ? listed.name : fmt::format("{}.{}", listed.name, op.outputs.size());
      op.outputs.push_back(add_tensor(std::move(tensor), kind, bytes));
      return op.outputs.back();
    };
    std::map<Bytes, TensorId> made;
    for (const std::uint32_t e : out_[v]) {
      const Bytes bytes = list_.edges[e].bytes.value_or(listed.output.value_or(Bytes{}));
      const auto known = made.find(bytes);
      tensor_of_[e] = known != made.end() ? known->second : made.emplace(bytes, make(bytes)).first->second;
    }
    if (out_[v].empty()) make(listed.output.value_or(Bytes{}));
    made_.ops.push_back(std::move(op));
  }

  EdgeList list_;
  Complaints& complaints_;
  Incidence out_, in_;
  std::vector<TensorId> tensor_of_;  ///< by edge: what it carries
  Graph made_;
};

}  // namespace

Graph graph_of(EdgeList list, Complaints& complaints) {
  return ListedGraph(std::move(list), complaints).graph();
}

}  // namespace plimsoll
