// Tables of layers <-> JSON.

#include "traces/layer_table.h"

#include <fmt/format.h>

#include <array>

#include "sim/core/names.h"
#include "sim/io/fields.h"
#include "sim/io/json/json.h"
#include "sim/io/one_of.h"
#include "sim/io/text_file.h"
#include "traces/trace_parts.h"

namespace plimsoll {

template <>
struct Names<Layer::Place> {
  static constexpr std::array all{std::pair{Layer::Place::anywhere, "anywhere"},
                                  std::pair{Layer::Place::first, "first"}, std::pair{Layer::Place::last, "last"}};
};

namespace {

using enum Need;

constexpr std::uint32_t most_devices = 1'000'000;

/// A whole number from 1.
std::uint32_t count_of(JsonCursor cursor) {
  const std::uint32_t count = cursor.index();
  if (count == 0 || count > most_devices) {
    cursor.complain(fmt::format("expected a whole number from 1 to {}, found {}", most_devices, count));
  }
  return count;
}

void read_sent(LayerOption& option, JsonCursor cursor) {
  cursor.array([&](JsonCursor pair) {
    std::size_t k = 0;
    std::pair<std::uint32_t, Bytes> sent;
    pair.array([&](JsonCursor element) {
      if (k == 0) sent.first = element.index();
      if (k == 1) sent.second = element.bytes();
      ++k;
    });
    if (k != 2) pair.complain(fmt::format("expected an edge and bytes, found {} numbers", k));
    option.sent.push_back(sent);
  });
}

const Field<LayerOption, JsonCursor> option_fields[] = {
    {"name", required, [](LayerOption& o, JsonCursor c) { o.name = c.string(); }},
    {"devices", optional, [](LayerOption& o, JsonCursor c) { o.devices = count_of(c); }},
    {"forward_s", required, [](LayerOption& o, JsonCursor c) { o.forward = c.seconds(); }},
    {"backward_s", optional, [](LayerOption& o, JsonCursor c) { o.backward = c.seconds(); }},
    {"parameter_bytes", optional, [](LayerOption& o, JsonCursor c) { o.parameters = c.bytes(); }},
    {"kept_bytes", optional, [](LayerOption& o, JsonCursor c) { o.kept = c.bytes(); }},
    {"fixed_bytes", optional, [](LayerOption& o, JsonCursor c) { o.fixed = c.bytes(); }},
    {"sent", optional, read_sent},
};

void read_options(Layer& layer, JsonCursor cursor) {
  cursor.array([&](JsonCursor element) { read_fields(element, option_fields, layer.options.emplace_back()); });
}

const Field<Layer, JsonCursor> layer_fields[] = {
    {"name", required, [](Layer& l, JsonCursor c) { l.name = c.string(); }},
    {"count", optional, [](Layer& l, JsonCursor c) { l.count = count_of(c); }},
    {"place", optional, [](Layer& l, JsonCursor c) { l.place = one_of<Layer::Place>(c); }},
    {"backward", optional, [](Layer& l, JsonCursor c) { l.backward = c.boolean(); }},
    {"together", optional, [](Layer& l, JsonCursor c) { l.together = c.index(); }},
    {"host_s", optional, [](Layer& l, JsonCursor c) { l.host = c.seconds(); }},
    {"options", optional, read_options},
};

const Field<LayerEdge, JsonCursor> edge_fields[] = {
    {"from", required, [](LayerEdge& e, JsonCursor c) { e.from = c.index(); }},
    {"to", required, [](LayerEdge& e, JsonCursor c) { e.to = c.index(); }},
    {"bytes", optional, [](LayerEdge& e, JsonCursor c) { e.bytes = c.bytes(); }},
    {"time_s", optional, [](LayerEdge& e, JsonCursor c) { e.time = c.seconds(); }},
};

void read_layers(LayerTable& table, JsonCursor cursor) {
  cursor.array([&](JsonCursor element) { read_fields(element, layer_fields, table.layers.emplace_back()); });
}

void read_layer_edges(LayerTable& table, JsonCursor cursor) {
  cursor.array([&](JsonCursor element) { read_fields(element, edge_fields, table.edges.emplace_back()); });
}

void read_format(LayerTable&, JsonCursor cursor) {
  const std::string format = cursor.string();
  if (format != layer_table_format) {
    cursor.complain(fmt::format("expected '{}', found '{}'", layer_table_format, format));
  }
}

void read_notes(LayerTable& table, JsonCursor cursor) {
  cursor.object([&](std::string_view key, JsonCursor value) { table.notes.emplace_back(key, value.string()); });
}

void read_bandwidth(LayerTable& table, JsonCursor cursor) {
  table.bandwidth = BytesPerSecond{cursor.number()};
  if (!(table.bandwidth->value > 0)) cursor.complain("expected more than 0, found 0");
}

const Field<LayerTable, JsonCursor> table_fields[] = {
    {"format", required, read_format},
    {"name", required, [](LayerTable& t, JsonCursor c) { t.name = c.string(); }},
    {"source", optional, read_notes},
    {"devices", optional, [](LayerTable& t, JsonCursor c) { t.devices = count_of(c); }},
    {"hosts", optional, [](LayerTable& t, JsonCursor c) { t.hosts = c.index(); }},
    {"micro_batches", optional, [](LayerTable& t, JsonCursor c) { t.micro_batches = count_of(c); }},
    {"memory_bytes", optional, [](LayerTable& t, JsonCursor c) { t.memory = c.bytes(); }},
    {"bandwidth_bytes_per_s", optional, read_bandwidth},
    {"layers", required, read_layers},
    {"edges", optional, read_layer_edges},
};

void check_table(JsonDocument& document, const LayerTable& table) {
  if (table.layers.empty()) document.complain("layers", "expected at least one layer");
  bool all_there = true;
  for (std::size_t e = 0; e < table.edges.size(); ++e) {
    const auto exists = [&](std::string_view end, std::uint32_t layer) {
      return check_index(document, below("edges", e, end), layer, table.layers.size(), "layer");
    };
    all_there = exists("from", table.edges[e].from) && exists("to", table.edges[e].to) && all_there;
  }
  for (std::size_t l = 0; l < table.layers.size(); ++l) {
    const Layer& layer = table.layers[l];
    if (layer.options.empty() && !layer.host) {
      document.complain(below("layers", l), "no way to run it: expected options, host_s or both");
    }
    for (std::size_t o = 0; o < layer.options.size(); ++o) {
      const std::string path = below("layers", l, fmt::format("options[{}].sent", o));
      for (const auto& [edge, bytes] : layer.options[o].sent) {
        if (!check_index(document, path, edge, table.edges.size(), "edge")) continue;
        if (table.edges[edge].from != l && table.edges[edge].to != l) {
          document.complain(path, fmt::format("edge {} neither begins nor ends at this layer", edge));
        }
      }
    }
  }
  if (all_there && has_circle(table)) document.complain("edges", "they form a circle");
}

Json option_json(const LayerOption& option) {
  Json json = {{"name", option.name},
               {"devices", option.devices},
               {"forward_s", option.forward.value},
               {"backward_s", option.backward.value},
               {"parameter_bytes", option.parameters.count},
               {"kept_bytes", option.kept.count},
               {"fixed_bytes", option.fixed.count}};
  if (!option.sent.empty()) json["sent"] = Json::array();
  for (const auto& [edge, bytes] : option.sent) json["sent"].push_back({edge, bytes.count});
  return json;
}

Json layer_json(const Layer& layer) {
  Json json = {{"name", layer.name}};
  if (layer.count != 1) json["count"] = layer.count;
  if (layer.place != Layer::Place::anywhere) json["place"] = written(layer.place);
  if (layer.backward) json["backward"] = true;
  if (layer.together) json["together"] = *layer.together;
  if (layer.host) json["host_s"] = layer.host->value;
  json["options"] = Json::array();
  for (const LayerOption& option : layer.options) json["options"].push_back(option_json(option));
  return json;
}

/// An element a line.
template <class Each>
std::string lines_of(std::size_t count, Each&& each) {
  std::string lines = "[";
  for (std::size_t k = 0; k < count; ++k) lines += (k == 0 ? "\n  " : ",\n  ") + json_text(each(k));
  return lines + "]";
}

}  // namespace

bool has_circle(const LayerTable& table) {
  std::vector<std::vector<std::uint32_t>> after(table.layers.size());
  std::vector<std::uint32_t> waiting(table.layers.size(), 0), next;
  for (const LayerEdge& edge : table.edges) {
    after[edge.from].push_back(edge.to);
    ++waiting[edge.to];
  }
  for (std::uint32_t l = 0; l < waiting.size(); ++l) {
    if (waiting[l] == 0) next.push_back(l);
  }
  for (std::size_t k = 0; k < next.size(); ++k) {
    for (const std::uint32_t to : after[next[k]]) {
      if (--waiting[to] == 0) next.push_back(to);
    }
  }
  return next.size() < waiting.size();
}

LayerTable parse_layer_table(std::string text, std::string file_name) {
  JsonDocument document(std::move(text), std::move(file_name));
  LayerTable table;
  document.read([&](JsonCursor root) { read_fields(root, table_fields, table); });
  check_table(document, table);
  document.throw_if_any();
  return table;
}

LayerTable read_layer_table(const std::filesystem::path& path) {
  return parse_layer_table(read_text_file(path), path.string());
}

std::string layer_table_text(const LayerTable& table) {
  Json head = {{"format", layer_table_format}, {"name", table.name}};
  for (const auto& [key, note] : table.notes) head["source"][key] = note;
  if (table.devices) head["devices"] = *table.devices;
  if (table.hosts) head["hosts"] = *table.hosts;
  if (table.micro_batches) head["micro_batches"] = *table.micro_batches;
  if (table.memory) head["memory_bytes"] = table.memory->count;
  if (table.bandwidth) head["bandwidth_bytes_per_s"] = table.bandwidth->value;
  std::string text = json_text(head);
  text.pop_back();
  text +=
      ",\n \"layers\": " + lines_of(table.layers.size(), [&](std::size_t l) { return layer_json(table.layers[l]); });
  text += ",\n \"edges\": " + lines_of(table.edges.size(), [&](std::size_t e) {
            const LayerEdge& edge = table.edges[e];
            Json json = {{"from", edge.from}, {"to", edge.to}, {"bytes", edge.bytes.count}};
            if (edge.time > Seconds{0}) json["time_s"] = edge.time.value;
            return json;
          });
  return text + "}\n";
}

void write_layer_table(const std::filesystem::path& path, const LayerTable& table) {
  write_text_file(path, layer_table_text(table));
}

}  // namespace plimsoll
