#include "traces/imports/piper_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "sim/io/fields.h"
#include "sim/io/text_file.h"
#include "traces/imports/layer_chain.h"
#include "traces/imports/layer_numbers.h"

namespace plimsoll {
namespace {

using enum Need;

/// Bytes by the id of the node at the other end of an edge.
using Sent = std::vector<std::pair<std::int64_t, Bytes>>;

struct PiperOption {
  LayerOption option;
  Sent from, to;  ///< nodes before, nodes after
};

struct PiperNode {
  std::string name;
  std::int64_t id = 0;
  std::vector<PiperOption> options;
};

struct PiperEdge {
  std::int64_t from = 0, to = 0;
  Bytes bytes;
};

struct PiperDraft {
  LayerTable table;
  std::vector<PiperNode> nodes;
  std::vector<PiperEdge> edges;
};

/// The whole number that a key is; complains where it is none.
std::int64_t number_of_key(JsonCursor value, std::string_view key, std::string_view noun) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), number);
  if (error != std::errc{} || end != key.data() + key.size()) value.complain(fmt::format("the key is not a {}", noun));
  return number;
}

Sent read_sync(JsonCursor cursor) {
  Sent sent;
  cursor.object([&](std::string_view key, JsonCursor value) {
    const std::int64_t id = number_of_key(value, key, "node's id");
    sent.emplace_back(id, rounded_bytes(value));
  });
  return sent;
}

const Field<PiperOption, JsonCursor> piper_option_fields[] = {
    {"id", required, [](PiperOption& o, JsonCursor c) { o.option.name = c.string(); }},
    {"timePerSample", required, [](PiperOption& o, JsonCursor c) { o.option.forward = seconds_in(c, 1); }},
    {"parameterSize", required, [](PiperOption& o, JsonCursor c) { o.option.parameters = rounded_bytes(c); }},
    {"memoryUsageA", required, [](PiperOption& o, JsonCursor c) { o.option.kept = rounded_bytes(c); }},
    {"memoryUsageB", required, [](PiperOption& o, JsonCursor c) { o.option.fixed = rounded_bytes(c); }},
    {"syncTimeFw", required, [](PiperOption& o, JsonCursor c) { o.from = read_sync(c); }},
    {"syncTimeBw", required, [](PiperOption& o, JsonCursor c) { o.to = read_sync(c); }},
};

void read_ways(PiperNode& node, JsonCursor cursor) {
  cursor.object([&](std::string_view key, JsonCursor list) {
    const std::int64_t degree = number_of_key(list, key, "number of devices");
    constexpr std::int64_t most = 1'000'000;
    if (degree < 1 || degree > most) list.complain(fmt::format("expected 1 to {} devices as the key", most));
    list.array([&](JsonCursor element) {
      PiperOption& option = node.options.emplace_back();
      read_fields(element, piper_option_fields, option);
      option.option.devices = static_cast<std::uint32_t>(std::min(std::max<std::int64_t>(degree, 1), most));
    });
  });
}

const Field<PiperNode, JsonCursor> piper_node_fields[] = {
    {"id", required, [](PiperNode& n, JsonCursor c) { n.id = c.integer(); }},
    {"name", required, [](PiperNode& n, JsonCursor c) { n.name = c.string(); }},
    {"TMPCs", required, read_ways},
};

const Field<PiperEdge, JsonCursor> piper_edge_fields[] = {
    {"sourceId", required, [](PiperEdge& e, JsonCursor c) { e.from = c.integer(); }},
    {"destId", required, [](PiperEdge& e, JsonCursor c) { e.to = c.integer(); }},
    {"communicationCost", required, [](PiperEdge& e, JsonCursor c) { e.bytes = rounded_bytes(c); }},
};

std::uint32_t whole_from_1(JsonCursor cursor) {
  constexpr std::uint32_t most = 1'000'000;
  const std::uint32_t value = cursor.index();
  if (value < 1 || value > most) cursor.complain(fmt::format("expected a whole number from 1 to {}", most));
  return value;
}

void read_rate(PiperDraft& draft, JsonCursor cursor) {
  draft.table.bandwidth = BytesPerSecond{cursor.number()};
  if (!(draft.table.bandwidth->value > 0)) cursor.complain("expected more than 0 bytes a second");
}

void read_piper_nodes(PiperDraft& draft, JsonCursor cursor) {
  cursor.array([&](JsonCursor element) { read_fields(element, piper_node_fields, draft.nodes.emplace_back()); });
}

void read_piper_edges(PiperDraft& draft, JsonCursor cursor) {
  cursor.array([&](JsonCursor element) { read_fields(element, piper_edge_fields, draft.edges.emplace_back()); });
}

const Field<PiperDraft, JsonCursor> piper_fields[] = {
    {"maxDevices", required, [](PiperDraft& d, JsonCursor c) { d.table.devices = whole_from_1(c); }},
    {"maxMemoryPerDevice", required, [](PiperDraft& d, JsonCursor c) { d.table.memory = rounded_bytes(c); }},
    {"bandwidth", required, read_rate},
    {"mbsInBatch", required, [](PiperDraft& d, JsonCursor c) { d.table.micro_batches = whole_from_1(c); }},
    {"nodes", required, read_piper_nodes},
    {"edges", required, read_piper_edges},
};

void add_piper_layers(JsonDocument& document, PiperDraft& draft) {
  LayerTable& table = draft.table;
  std::map<std::int64_t, std::uint32_t> position;
  for (std::uint32_t n = 0; n < draft.nodes.size(); ++n) {
    if (position.emplace(draft.nodes[n].id, n).second) continue;
    document.complain(below("nodes", n, "id"), fmt::format("a second node of id {}", draft.nodes[n].id));
  }
  std::map<std::pair<std::int64_t, std::int64_t>, std::uint32_t> edge_between;
  for (std::size_t e = 0; e < draft.edges.size(); ++e) {
    const PiperEdge& edge = draft.edges[e];
    const auto known = [&](std::string_view end, std::int64_t id) {
      if (position.contains(id)) return true;
      document.complain(below("edges", e, end), fmt::format("no node of id {}", id));
      return false;
    };
    const bool is_from_known = known("sourceId", edge.from), is_to_known = known("destId", edge.to);
    if (!is_from_known || !is_to_known) continue;
    edge_between.emplace(std::pair{edge.from, edge.to}, static_cast<std::uint32_t>(table.edges.size()));
    table.edges.push_back(
        {.from = position.at(edge.from), .to = position.at(edge.to), .bytes = edge.bytes, .time = {}});
  }
  for (std::size_t n = 0; n < draft.nodes.size(); ++n) {
    PiperNode& node = draft.nodes[n];
    Layer& layer = table.layers.emplace_back();
    layer.name = std::move(node.name);
    if (node.options.empty())
      document.complain(below("nodes", n, "TMPCs"), "expected at least one way to run the node");
    for (PiperOption& way : node.options) {
      const auto add = [&](std::int64_t from, std::int64_t to, Bytes bytes) {
        const auto found = edge_between.find({from, to});
        if (found == edge_between.end()) {
          document.complain(below("nodes", n, "TMPCs"),
                            fmt::format("bytes for an edge from {} to {}, which is not there", from, to));
        } else if (bytes > Bytes{0}) {
          way.option.sent.emplace_back(found->second, bytes);
        }
      };
      for (const auto& [id, bytes] : way.from) add(id, node.id, bytes);
      for (const auto& [id, bytes] : way.to) add(node.id, id, bytes);
      layer.options.push_back(std::move(way.option));
    }
  }
}

constexpr std::string_view recomputing = "activation recomp";

/// The file has the time of both passes. The forward is what recomputation takes longer, else a third.
void split_passes(Layer& layer) {
  const auto on_one_device = [&](bool recomputes) {
    return std::ranges::find_if(layer.options, [&](const LayerOption& way) {
      return way.devices == 1 && (way.name == recomputing) == recomputes;
    });
  };
  const auto plain = on_one_device(false), again = on_one_device(true);
  if (plain == layer.options.end()) return;
  const Seconds both = plain->forward;
  Seconds forward = (1.0 / 3) * both;
  if (again != layer.options.end() && again->forward > both && again->forward <= 2 * both) {
    forward = again->forward - both;
  }
  for (LayerOption& way : layer.options) {
    way.backward = std::max(Seconds{}, way.forward - forward);
    way.forward = std::min(way.forward, forward);
  }
}

}  // namespace

LayerTable parse_piper_graph(std::string text, std::string file_name) {
  const std::string name = std::filesystem::path(file_name).stem().string();
  JsonDocument document(std::move(text), std::move(file_name));
  PiperDraft draft;
  document.read([&](JsonCursor root) { read_fields(root, piper_fields, draft); });
  add_piper_layers(document, draft);
  if (draft.table.layers.empty()) document.complain("nodes", "expected at least one node");
  document.throw_if_any();
  if (has_circle(draft.table)) document.complain("edges", "they form a circle");
  document.throw_if_any();
  draft.table.name = name;
  draft.table.notes = {{"imported_from", "a graph of Piper; timePerSample is taken as s of both passes"}};
  return std::move(draft.table);
}

Chain parse_piper_chain(std::string text, std::string file_name) {
  LayerTable table = parse_piper_graph(std::move(text), std::move(file_name));
  for (Layer& layer : table.layers) split_passes(layer);
  table.notes.emplace_back("assumed",
                           "fp32, which the file does not say; a layer's forward is what recomputation adds to both "
                           "passes, else a third of them; no workspaces");
  return chain_of(table, {.recomputing = recomputing});
}

LayerTable read_piper_graph(const std::filesystem::path& path) {
  return parse_piper_graph(read_text_file(path), path.string());
}

Chain read_piper_chain(const std::filesystem::path& path) {
  return parse_piper_chain(read_text_file(path), path.string());
}

}  // namespace plimsoll
