#include "traces/imports/checkmate_graph.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/io/fields.h"
#include "sim/io/quantity.h"
#include "sim/io/text_file.h"
#include "traces/trace_parts.h"

namespace plimsoll {
namespace {

using enum Need;

struct Node {
  std::string name;
  Bytes bytes;
  double cost = 0;
  bool backward = false;
};

struct CheckmateDraft {
  std::string name;
  std::vector<Node> nodes;
  std::vector<std::vector<std::uint32_t>> edges;
  std::vector<std::pair<std::string, std::string>> notes;
};

constexpr double seconds_of_cost = 1e-6;

double cost(const JsonCursor& cursor) {
  constexpr double most = longest_seconds.value / seconds_of_cost;
  const double value = cursor.number();
  if (value > most) cursor.complain(fmt::format("absurdly large, expected at most {:.0f}, {}", most, cursor.found()));
  return value;
}

const Field<Node, JsonCursor> node_fields[] = {
    {"name", required, [](Node& n, JsonCursor c) { n.name = c.string(); }},
    {"bytes", required, [](Node& n, JsonCursor c) { n.bytes = c.bytes(); }},
    {"cost", required, [](Node& n, JsonCursor c) { n.cost = cost(c); }},
    {"backward", required, [](Node& n, JsonCursor c) { n.backward = c.boolean(); }},
};

void read_nodes(CheckmateDraft& draft, JsonCursor cursor) {
  cursor.array([&](JsonCursor element) { read_fields(element, node_fields, draft.nodes.emplace_back()); });
}

void read_edges(CheckmateDraft& draft, JsonCursor cursor) {
  cursor.array([&](JsonCursor element) { draft.edges.push_back(read_indices(element)); });
}

template <class Fact>
void keep_note(CheckmateDraft& draft, const char* key, Fact fact) {
  draft.notes.emplace_back(key, fmt::format("{}", fact));
}

const Field<CheckmateDraft, JsonCursor> graph_fields[] = {
    {"name", required, [](CheckmateDraft& d, JsonCursor c) { d.name = c.string(); }},
    {"nodes", required, read_nodes},
    {"edges", required, read_edges},
    {"peak_without_recomputation_bytes", optional,
     [](CheckmateDraft& d, JsonCursor c) { keep_note(d, "peak_without_recomputation_bytes", c.integer()); }},
    {"largest_working_set_bytes", optional,
     [](CheckmateDraft& d, JsonCursor c) { keep_note(d, "largest_working_set_bytes", c.integer()); }},
    {"total_cost", optional, [](CheckmateDraft& d, JsonCursor c) { keep_note(d, "total_cost", c.number()); }},
};

Graph graph_of(JsonDocument& document, CheckmateDraft& draft) {
  Graph graph;
  graph.name = draft.name;
  graph.source.notes.emplace_back("imported_from", "a graph of nodes with costs: a cost of 1 became 1 us");
  std::ranges::move(draft.notes, std::back_inserter(graph.source.notes));
  for (const Node& node : draft.nodes) {
    const TensorId output = id_at<TensorId>(graph.tensors.size());
    graph.tensors.push_back({.name = node.name,
                             .kind = node.backward ? TensorKind::gradient : TensorKind::activation,
                             .bytes = node.bytes,
                             .storage = id_at<StorageId>(graph.storages++),
                             .shape = {},
                             .dtype = {}});
    Op op;
    op.name = node.name;
    op.phase = node.backward ? Phase::backward : Phase::forward;
    op.duration = Seconds{seconds_of_cost * node.cost};
    op.outputs = {output};
    graph.ops.push_back(std::move(op));
  }
  for (std::size_t e = 0; e < draft.edges.size(); ++e) {
    const std::vector<std::uint32_t>& ends = draft.edges[e];
    const std::string path = fmt::format("edges[{}]", e);
    if (ends.size() != 2) {
      document.complain(path, fmt::format("expected two nodes, from and to, found {}", ends.size()));
      continue;
    }
    const auto exists = [&](std::size_t k) {
      return check_index(document, fmt::format("{}[{}]", path, k), ends[k], graph.ops.size(), "node");
    };
    if (!exists(0) || !exists(1)) continue;
    if (ends[0] >= ends[1]) {
      document.complain(path, fmt::format("nodes stand in the order of computation, expected an edge to a later node, "
                                          "found {} to {}",
                                          ends[0], ends[1]));
      continue;
    }
    std::vector<TensorId>& inputs = graph.ops[ends[1]].inputs;
    if (std::ranges::find(inputs, TensorId{ends[0]}) != inputs.end()) {
      document.complain(path, fmt::format("a second edge from {} to {}", ends[0], ends[1]));
    }
    inputs.push_back(TensorId{ends[0]});
  }
  return graph;
}

}  // namespace

Graph parse_checkmate_graph(std::string text, std::string file_name) {
  JsonDocument document(std::move(text), std::move(file_name));
  CheckmateDraft draft;
  document.read([&](JsonCursor root) { read_fields(root, graph_fields, draft); });
  Graph graph = graph_of(document, draft);
  document.throw_if_any();
  check_graph(document, graph);
  document.throw_if_any();
  return graph;
}

Graph read_checkmate_graph(const std::filesystem::path& path) {
  return parse_checkmate_graph(read_text_file(path), path.string());
}

}  // namespace plimsoll
