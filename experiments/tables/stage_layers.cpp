#include "experiments/tables/stage_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "experiments/study/model.h"
#include "sim/core/optimizer.h"
#include "sim/io/input_error.h"
#include "sim/io/json/json_cursor.h"
#include "sim/io/text_file.h"
#include "sim/model/shared_parameters.h"

namespace plimsoll {
namespace {

/// What a JSON object says that it is; nothing where the text is none, or does not say.
std::optional<std::string> format_of(const std::string& text, const std::string& reference) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos || text[first] != '{') return std::nullopt;
  return JsonDocument(text, reference).peek_string("format");
}

}  // namespace

LayerTable layers_of(const Chain& chain, Optimizer optimizer, States states) {
  LayerTable table;
  table.name = chain.name;
  for (std::size_t i = 0; i < chain.stages.size(); ++i) {
    const Stage& stage = chain.stages[i];
    Layer& layer = table.layers.emplace_back();
    layer.name = stage.name;
    LayerOption plain{.name = "plain", .forward = stage.forward, .backward = stage.backward, .kept = stage.saved};
    for (const std::uint32_t p : stage.parameters) {
      const Parameter& parameter = chain.parameters[p];
      plain.parameters += parameter.bytes;
      if (parameter.trained) plain.fixed += state_bytes(optimizer, states, parameter.bytes, dtype_of(chain, parameter));
    }
    plain.fixed += plain.parameters + stage.parameter_gradient.value_or(trained_bytes(chain, stage));
    LayerOption again = plain;
    again.name = "recompute";
    again.backward += stage.forward;
    again.kept = boundary_bytes(chain, i);
    again.fixed += stage.saved;
    layer.options.push_back(std::move(plain));
    if (stage.recomputable) layer.options.push_back(std::move(again));
    if (i == 0) continue;
    const auto to = static_cast<std::uint32_t>(i);
    table.edges.push_back({.from = to - 1, .to = to, .bytes = boundary_bytes(chain, i), .time = {}});
  }
  return table;
}

LayerTable load_layers(const std::string& reference, Optimizer optimizer, States states) {
  std::error_code none;  // no file: load_model says why
  if (!is_made_by_rule(reference) && std::filesystem::is_regular_file(reference, none)) {
    std::string text = read_text_file(reference);
    const std::optional<std::string> format = format_of(text, reference);
    if (!format) {
      throw InputError(
          fmt::format("{}: neither a trace nor a table of layers; if this is a profile of PipeDream, Piper, "
                      "dnn-partitioning or SAPP, 'plimsoll import' makes a table of it",
                      reference));
    }
    if (*format == layer_table_format) {
      if (optimizer != Optimizer::none) {
        throw InputError(fmt::format(
            "--optimizer: '{}' is a table of layers, which states itself which bytes are fixed", reference));
      }
      return parse_layer_table(std::move(text), reference);
    }
  }
  const Trace trace = load_model(reference);
  const auto* chain = std::get_if<Chain>(&trace.model);
  if (chain == nullptr) {
    throw InputError(
        fmt::format("{}: a graph of operators; stages are cut of chains and of tables of layers, which "
                    "'plimsoll import' makes",
                    reference));
  }
  return layers_of(*chain, optimizer, states);
}

std::vector<LayerOption> plain_options(const LayerTable& table, std::string_view planner) {
  std::vector<LayerOption> options;
  for (const Layer& layer : table.layers) {
    const auto complain = [&](std::string_view what) {
      throw InputError(fmt::format("{}: layer '{}' of '{}' {}", planner, layer.name, table.name, what));
    };
    if (layer.backward) complain("belongs to the backward; this planner takes layers with both passes");
    const auto one = std::ranges::find(layer.options, 1U, &LayerOption::devices);
    if (one == layer.options.end()) complain("has no way to run on one device");
    options.push_back(*one);
  }
  return options;
}

}  // namespace plimsoll
