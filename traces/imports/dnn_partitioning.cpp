#include "traces/imports/dnn_partitioning.h"

#include <fmt/format.h>

#include <set>
#include <unordered_map>

#include "sim/io/fields.h"
#include "sim/io/text_file.h"
#include "traces/imports/edge_list.h"
#include "traces/imports/layer_numbers.h"

namespace plimsoll {
namespace {

using enum Need;

/// `true`, `false`, 1 or 0.
bool flag(JsonCursor cursor) {
  return cursor.is_whole() ? cursor.index() != 0 : cursor.boolean();
}

Seconds from_milliseconds(JsonCursor cursor) {
  return seconds_in(cursor, 1e-3);
}

struct PlacedNode {
  Layer layer;
  std::int64_t id = 0;
  Seconds device;
  Bytes size;
  bool on_device = true;
};

struct PlacedEdge {
  std::int64_t from = 0, to = 0;
  Seconds cost;
  std::optional<Bytes> size;
};

struct PlacementDraft {
  LayerTable table;
  std::vector<std::int64_t> ids;
  std::vector<PlacedEdge> edges;
};

const Field<PlacedNode, JsonCursor> placed_node_fields[] = {
    {"name", optional, [](PlacedNode& n, JsonCursor c) { n.layer.name = c.string(); }},
    {"id", required, [](PlacedNode& n, JsonCursor c) { n.id = c.integer(); }},
    {"layerId", optional, [](PlacedNode&, JsonCursor c) { c.compact(); }},
    {"supportedOnFpga", required, [](PlacedNode& n, JsonCursor c) { n.on_device = flag(c); }},
    {"cpuLatency", required, [](PlacedNode& n, JsonCursor c) { n.layer.host = from_milliseconds(c); }},
    {"fpgaLatency", required, [](PlacedNode& n, JsonCursor c) { n.device = from_milliseconds(c); }},
    {"isBackwardNode", required, [](PlacedNode& n, JsonCursor c) { n.layer.backward = flag(c); }},
    {"colorClass", optional,
     [](PlacedNode& n, JsonCursor c) {
       if (c.is_whole()) {
         n.layer.together = c.index();
       } else if (const std::string value = c.compact(); value != "null") {
         c.complain(fmt::format("expected a whole number or null, found {}", value));
       }
     }},
    {"size", required, [](PlacedNode& n, JsonCursor c) { n.size = rounded_bytes(c); }},
};

const Field<PlacedEdge, JsonCursor> placed_edge_fields[] = {
    {"sourceId", required, [](PlacedEdge& e, JsonCursor c) { e.from = c.integer(); }},
    {"destId", required, [](PlacedEdge& e, JsonCursor c) { e.to = c.integer(); }},
    {"cost", required, [](PlacedEdge& e, JsonCursor c) { e.cost = from_milliseconds(c); }},
    {"size", optional, [](PlacedEdge& e, JsonCursor c) { e.size = rounded_bytes(c); }},
};

void read_placed_nodes(PlacementDraft& draft, JsonCursor cursor) {
  cursor.array([&](JsonCursor element) {
    PlacedNode node;
    read_fields(element, placed_node_fields, node);
    if (node.layer.name.empty()) node.layer.name = fmt::format("node {}", node.id);
    if (node.on_device) {
      LayerOption option{.name = "device", .forward = node.device};
      option.fixed = node.size;
      node.layer.options.push_back(std::move(option));
    }
    draft.ids.push_back(node.id);
    draft.table.layers.push_back(std::move(node.layer));
  });
}

void read_placed_edges(PlacementDraft& draft, JsonCursor cursor) {
  cursor.array([&](JsonCursor element) { read_fields(element, placed_edge_fields, draft.edges.emplace_back()); });
}

const Field<PlacementDraft, JsonCursor> placement_fields[] = {
    {"maxSizePerFPGA", required, [](PlacementDraft& d, JsonCursor c) { d.table.memory = rounded_bytes(c); }},
    {"maxFPGAs", required, [](PlacementDraft& d, JsonCursor c) { d.table.devices = c.index(); }},
    {"maxCPUs", required, [](PlacementDraft& d, JsonCursor c) { d.table.hosts = c.index(); }},
    {"nodes", required, read_placed_nodes},
    {"edges", required, read_placed_edges},
};

/// Edges by position of their nodes; all edges out of one node must cost the same.
void add_edges(JsonDocument& document, PlacementDraft& draft) {
  std::unordered_map<std::int64_t, std::uint32_t> position;
  for (std::uint32_t n = 0; n < draft.ids.size(); ++n) {
    if (position.emplace(draft.ids[n], n).second) continue;
    document.complain(below("nodes", n, "id"), fmt::format("a second node of id {}", draft.ids[n]));
  }
  std::vector<const PlacedEdge*> first(draft.ids.size(), nullptr);
  for (std::size_t e = 0; e < draft.edges.size(); ++e) {
    const PlacedEdge& edge = draft.edges[e];
    const auto found = [&](std::string_view end, std::int64_t id) {
      const auto at = position.find(id);
      if (at == position.end()) document.complain(below("edges", e, end), fmt::format("no node of id {}", id));
      return at;
    };
    const auto from = found("sourceId", edge.from), to = found("destId", edge.to);
    if (from == position.end() || to == position.end()) continue;
    const PlacedEdge*& known = first[from->second];
    if (known == nullptr) known = &edge;
    if (known->cost != edge.cost) {
      document.complain(below("edges", e, "cost"), "another cost than an earlier edge of the same source");
    }
    draft.table.edges.push_back(
        {.from = from->second, .to = to->second, .bytes = edge.size.value_or(Bytes{}), .time = edge.cost});
  }
}

/// The file, checked; the name of its table is the file's.
PlacementDraft read_placement(JsonDocument& document, const std::string& file_name) {
  PlacementDraft draft;
  document.read([&](JsonCursor root) { read_fields(root, placement_fields, draft); });
  add_edges(document, draft);
  LayerTable& table = draft.table;
  if (table.layers.empty()) document.complain("nodes", "expected at least one node");
  constexpr std::uint32_t most = 1000;
  if (table.devices == 0U || table.devices.value_or(1) > most) {
    document.complain("maxFPGAs", fmt::format("expected a whole number from 1 to {}", most));
  }
  if (table.hosts.value_or(0) > most) document.complain("maxCPUs", fmt::format("expected at most {}", most));
  document.throw_if_any();
  if (has_circle(table)) document.complain("edges", "they form a circle");
  document.throw_if_any();
  table.name = std::filesystem::path(file_name).stem().string();
  return draft;
}

/// What a graph needs and a table does without.
void check_for_graph(JsonDocument& document, const PlacementDraft& draft) {
  std::set<std::pair<std::int64_t, std::int64_t>> known;
  for (std::size_t e = 0; e < draft.edges.size(); ++e) {
    const PlacedEdge& edge = draft.edges[e];
    if (!edge.size) document.complain(below("edges", e), "missing key 'size': a graph needs the bytes of its values");
    if (known.emplace(edge.from, edge.to).second) continue;
    document.complain(below("edges", e), fmt::format("a second edge from {} to {}", edge.from, edge.to));
  }
  document.throw_if_any();
}

ListedOp listed(const Layer& layer) {
  ListedOp op;
  op.name = layer.name;
  op.phase = layer.backward ? Phase::backward : Phase::forward;
  op.together = layer.together;
  if (layer.options.empty()) {
    op.time = layer.host.value_or(Seconds{});
    op.attributes.emplace_back(device_attribute, host_device);
  } else {
    op.time = layer.options.front().forward;
    op.parameters = layer.options.front().fixed;
    if (layer.host) op.attributes.emplace_back("host_s", fmt::format("{}", layer.host->value));
  }
  return op;
}

}  // namespace

LayerTable parse_dnn_partitioning(std::string text, std::string file_name) {
  JsonDocument document(std::move(text), file_name);
  LayerTable table = read_placement(document, file_name).table;
  table.notes = {{"imported_from", "a graph of dnn-partitioning; times are taken as ms"}};
  return table;
}

LayerTable read_dnn_partitioning(const std::filesystem::path& path) {
  return parse_dnn_partitioning(read_text_file(path), path.string());
}

Graph parse_dnn_partitioning_graph(std::string text, std::string file_name) {
  JsonDocument document(std::move(text), file_name);
  const PlacementDraft draft = read_placement(document, file_name);
  check_for_graph(document, draft);
  EdgeList list;
  list.name = draft.table.name;
  for (const Layer& layer : draft.table.layers) list.ops.push_back(listed(layer));
  for (const LayerEdge& edge : draft.table.edges) {
    list.edges.push_back({.from = edge.from, .to = edge.to, .bytes = edge.bytes, .place = {}});
  }
  list.notes = {
      {"imported_from", "a graph of dnn-partitioning; times are taken as ms"},
      {"assumed",
       "fp32, which the file does not say; the size of a node is a parameter of its own, resident throughout; "
       "values have the bytes of their edges, whose costs are left out; no workspaces"},
      {"left_out",
       "costs of edges: the platform's links decide how long a transfer takes; that nodes may run on the host"},
      {"accelerators", fmt::format("{}", draft.table.devices.value_or(1))},
      {"accelerator_bytes", fmt::format("{}", draft.table.memory.value_or(Bytes{}).count)}};
  Complaints complaints(file_name);
  return graph_of(std::move(list), complaints);
}

Graph read_dnn_partitioning_graph(const std::filesystem::path& path) {
  return parse_dnn_partitioning_graph(read_text_file(path), path.string());
}

}  // namespace plimsoll
