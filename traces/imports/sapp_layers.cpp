#include "traces/imports/sapp_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "sim/io/fields.h"
#include "sim/io/input_error.h"
#include "sim/io/text_file.h"
#include "traces/imports/layer_chain.h"
#include "traces/imports/layer_numbers.h"
#include "traces/trace_parts.h"

namespace plimsoll {
namespace {

using enum Need;

constexpr double millisecond = 1e-3, megabyte = 1e6;

/// A way to recompute, as the files name its memory and the share of a forward that it adds to the backward.
struct Recomputation {
  std::string_view name;
  double coefficient = 0;  ///< where the file does not state it
};
constexpr std::string_view full = "full";
constexpr std::array recomputations{Recomputation{"none", 0}, Recomputation{"select", 0.04},
                                    Recomputation{"comm", 0.125}, Recomputation{"both", 0.165},
                                    Recomputation{full, 0.5}};

struct SappLayer {
  Layer layer;
  Seconds time;
  Bytes parameters;
  std::array<std::optional<Bytes>, recomputations.size()> memory;
  std::array<std::optional<double>, recomputations.size()> coefficient;
};

struct SappDraft {
  std::string name;
  std::vector<SappLayer> layers;
};

Bytes from_megabytes(JsonCursor cursor) {
  const double value = cursor.number(), most = static_cast<double>(largest_bytes.count) / megabyte;
  if (value > most) cursor.complain(fmt::format("expected at most {:.0f} MB, {}", most, cursor.found()));
  return {std::llround(std::min(value, most) * megabyte)};
}

template <std::size_t way>
void read_memory(SappLayer& layer, JsonCursor cursor) {
  layer.memory[way] = from_megabytes(cursor);
}

template <std::size_t way>
void read_coefficient(SappLayer& layer, JsonCursor cursor) {
  constexpr double most = 1000;
  layer.coefficient[way] = cursor.number();
  if (*layer.coefficient[way] > most) cursor.complain(fmt::format("expected at most {}, {}", most, cursor.found()));
}

void read_type(SappLayer& layer, JsonCursor cursor) {
  const std::string type = cursor.string();
  if (type == "HEAD") {
    layer.layer.place = Layer::Place::first;
  } else if (type == "TAIL") {
    layer.layer.place = Layer::Place::last;
  } else if (type != "BODY") {
    cursor.complain(fmt::format("expected HEAD, BODY or TAIL, {}", cursor.found()));
  }
}

void read_count(SappLayer& layer, JsonCursor cursor) {
  constexpr std::uint32_t most = 100'000;
  layer.layer.count = cursor.index();
  if (layer.layer.count < 1 || layer.layer.count > most) {
    cursor.complain(fmt::format("expected a whole number from 1 to {}", most));
  }
}

const Field<SappLayer, JsonCursor> sapp_layer_fields[] = {
    {"name", required, [](SappLayer& l, JsonCursor c) { l.layer.name = c.string(); }},
    {"model_name", optional, [](SappLayer&, JsonCursor c) { c.compact(); }},
    {"type", required, read_type},
    {"time", required, [](SappLayer& l, JsonCursor c) { l.time = seconds_in(c, millisecond); }},
    {"nb_layer", required, read_count},
    {"memory_parameter", required, [](SappLayer& l, JsonCursor c) { l.parameters = from_megabytes(c); }},
    {"memory_activation", optional, read_memory<0>},
    {"memory_select_rec", optional, read_memory<1>},
    {"memory_select_comm", optional, read_memory<2>},
    {"memory_both_comm_select", optional, read_memory<3>},
    {"memory_recompute", optional, read_memory<4>},
    {"backward_coef", optional, read_coefficient<0>},
    {"select_rec_coef", optional, read_coefficient<1>},
    {"select_comm_coef", optional, read_coefficient<2>},
    {"both_comm_select_coef", optional, read_coefficient<3>},
    {"recompute_coef", optional, read_coefficient<4>},
};

void read_sapp_list(SappDraft& draft, JsonCursor cursor) {
  cursor.array([&](JsonCursor element) { read_fields(element, sapp_layer_fields, draft.layers.emplace_back()); });
}

const Field<SappDraft, JsonCursor> sapp_fields[] = {
    {"name", required, [](SappDraft& d, JsonCursor c) { d.name = c.string(); }},
    {"pre_defined_layer", optional, [](SappDraft&, JsonCursor c) { c.compact(); }},
    {"auto_partition_layer", optional, [](SappDraft&, JsonCursor c) { c.compact(); }},
    {"layers_description", required, read_sapp_list},
};

/// What full recomputation keeps of a layer: its input. Nothing where the file does not say.
std::optional<Bytes> input_of(const Layer& layer) {
  const auto way = std::ranges::find(layer.options, full, &LayerOption::name);
  return way == layer.options.end() ? std::nullopt : std::optional(way->kept);
}

/// Each of equal layers by itself, the first stage's first and the last stage's last. A layer hands on the input of the
/// next one or, where the file does not say it, what it has read itself.
LayerTable one_by_one(const LayerTable& table) {
  LayerTable row{.name = table.name, .notes = table.notes};
  constexpr std::uint64_t most = 100'000;
  std::uint64_t all = 0;
  for (const Layer& layer : table.layers) all += layer.count;
  if (all > most) throw InputError(fmt::format("{}: {} layers, expected at most {}", table.name, all, most));
  for (const Layer::Place place : {Layer::Place::first, Layer::Place::anywhere, Layer::Place::last}) {
    for (const Layer& layer : table.layers) {
      if (layer.place != place) continue;
      for (std::uint32_t k = 0; k < layer.count; ++k) {
        Layer& one = row.layers.emplace_back(layer);
        if (layer.count > 1) one.name = fmt::format("{}[{}]", layer.name, k);
        one.count = 1;
        if (row.layers.size() == 1) continue;
        const auto to = static_cast<std::uint32_t>(row.layers.size() - 1);
        const Bytes before = row.edges.empty() ? Bytes{} : row.edges.back().bytes;
        row.edges.push_back({.from = to - 1, .to = to, .bytes = input_of(layer).value_or(before), .time = {}});
      }
    }
  }
  return row;
}

}  // namespace

LayerTable parse_sapp_layers(std::string text, std::string file_name) {
  JsonDocument document(std::move(text), std::move(file_name));
  SappDraft draft;
  document.read([&](JsonCursor root) { read_fields(root, sapp_fields, draft); });
  LayerTable table;
  table.name = std::move(draft.name);
  table.notes = {
      {"imported_from", "layers of SAPP's pipeline balancing: ms, MB; backward = 2 forwards and the recomputation"}};
  std::size_t heads = 0, tails = 0, bodies = 0;
  for (std::size_t l = 0; l < draft.layers.size(); ++l) {
    SappLayer& from = draft.layers[l];
    (from.layer.place == Layer::Place::first ? heads : from.layer.place == Layer::Place::last ? tails : bodies)++;
    if (from.layer.place == Layer::Place::anywhere && !from.memory[0]) {
      document.complain(below("layers_description", l), "a BODY without memory_activation");
    }
    for (std::size_t w = 0; w < recomputations.size(); ++w) {
      if (w > 0 && !from.memory[w]) continue;
      const double again = from.coefficient[w].value_or(recomputations[w].coefficient);
      LayerOption option{.name = std::string(recomputations[w].name), .forward = from.time};
      option.backward = 2 * (1 + again) * from.time;
      option.parameters = option.fixed = from.parameters;
      option.kept = from.memory[w].value_or(Bytes{0});
      from.layer.options.push_back(std::move(option));
    }
    table.layers.push_back(std::move(from.layer));
  }
  if (bodies == 0) document.complain("layers_description", "expected at least one BODY");
  if (heads > 1 || tails > 1) document.complain("layers_description", "expected at most one HEAD and one TAIL");
  document.throw_if_any();
  return table;
}

Chain parse_sapp_chain(std::string text, std::string file_name) {
  const LayerTable table = parse_sapp_layers(std::move(text), std::move(file_name));
  LayerTable row = one_by_one(table);
  row.notes.emplace_back("assumed",
                         "fp32, which the file does not say; memory_parameter is there throughout; what full "
                         "recomputation keeps is a layer's input; no workspaces");
  return chain_of(row, {.recomputing = full, .trains = false});
}

LayerTable read_sapp_layers(const std::filesystem::path& path) {
  return parse_sapp_layers(read_text_file(path), path.string());
}

Chain read_sapp_chain(const std::filesystem::path& path) {
  return parse_sapp_chain(read_text_file(path), path.string());
}

}  // namespace plimsoll
