// plimsoll list, plimsoll describe

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <memory>

#include "experiments/commands/commands.h"
#include "experiments/study/model.h"
#include "platforms/platform_file.h"
#include "sim/io/input_error.h"
#include "sim/io/json/json.h"
#include "sim/io/quantity.h"
#include "strategies/list.h"
#include "traces/imports/framework_graphs.h"
#include "traces/models/named_models.h"
#include "traces/models/synthetic.h"
#include "traces/models/synthetic_graphs.h"
#include "traces/trace_file.h"
#include "validate/networks/networks.h"

namespace plimsoll {
namespace {

Json options_json(const StrategyInfo& strategy) {
  Json options = Json::array();
  for (const OptionInfo& option : strategy.options) {
    options.push_back({{"name", option.name},
                       {"default", strategy.options.default_text(option)},
                       {"values", option.values_text()},
                       {"help", option.help}});
  }
  return options;
}

Json strategies_json() {
  Json list = Json::array();
  for (const StrategyInfo* strategy : strategies()) {
    list.push_back({{"name", strategy->name},
                    {"family", name_of(strategy->family)},
                    {"summary", strategy->summary},
                    {"source", strategy->source},
                    {"chains_only", strategy->chains_only},
                    {"options", options_json(*strategy)}});
  }
  return list;
}

Json platforms_json() {
  Json list = Json::array();
  for (const std::string& name : shipped_platforms()) {
    const Platform platform = load_platform(name);
    const Memory& memory = platform[platform.devices.front().memory];
    Json entry{{"name", name}, {"devices", platform.devices.size()}};
    entry["model"] = platform.devices.front().model;
    entry["memory_bytes"] = memory.capacity ? Json(memory.capacity->count) : Json(nullptr);
    list.push_back(std::move(entry));
  }
  return list;
}

std::string kind_of(const Trace& trace) {
  return std::holds_alternative<Chain>(trace.model) ? "chain" : "graph";
}

std::size_t size_of(const Trace& trace) {
  const Chain* chain = std::get_if<Chain>(&trace.model);
  return chain != nullptr ? chain->stages.size() : std::get<Graph>(trace.model).ops.size();
}

Json traces_json() {
  Json list = Json::array();
  for (const std::string& name : shipped_traces()) {
    const Trace trace = load_trace(name);
    list.push_back(
        {{"name", name}, {"kind", kind_of(trace)}, {"size", size_of(trace)}, {"device", source_of(trace).device}});
  }
  return list;
}

/// Rows in columns as wide as they need, two spaces between them; the last column ends where its text does.
std::string in_columns(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const std::vector<std::string>& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string text;
  for (const std::vector<std::string>& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) line += fmt::format("{:<{}}", row[c], widths[c] + 2);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

Json models_json() {
  Json list = Json::array();
  for (const NamedModel& m : named_models()) {
    list.push_back({{"name", std::string(m.name)},
                    {"parameters", m.parameters},
                    {"trace", std::string(m.sizes)},
                    {"source", std::string(m.source)}});
  }
  return list;
}

int run_list(const std::string& what, bool json) {
  std::vector<std::vector<std::string>> rows;
  if (what == "strategies") {
    if (json) {
      std::cout << json_text({{"strategies", strategies_json()}}, 2) << '\n';
      return exit_fine;
    }
    for (const StrategyInfo* s : strategies()) {
      rows.push_back({std::string(s->name), std::string(name_of(s->family)), std::string(s->summary)});
    }
    std::cout << in_columns(rows);
  } else if (what == "platforms") {
    const Json list = platforms_json();
    if (json) {
      std::cout << json_text({{"platforms", list}}, 2) << '\n';
      return exit_fine;
    }
    for (const Json& p : list) {
      const Json& bytes = p["memory_bytes"];
      const std::string model = text_of(p["model"]), count = text_of(p["devices"]);
      rows.push_back({text_of(p["name"]), count + " x " + (model.empty() ? "any device" : model),
                      bytes.is_null() ? "unlimited" : format_bytes(Bytes{bytes.get<std::int64_t>()})});
    }
    std::cout << in_columns(rows);
  } else if (what == "models") {
    if (json) {
      std::cout << json_text({{"models", models_json()}}, 2) << '\n';
      return exit_fine;
    }
    for (const NamedModel& m : named_models()) {
      rows.push_back({std::string(m.name),
                      fmt::format("{:.3f} billion parameters", static_cast<double>(m.parameters) / 1e9),
                      std::string(m.source), std::string(m.sizes)});
    }
    std::cout << in_columns(rows);
  } else {
    const Json list = traces_json();
    if (json) {
      std::cout << json_text({{"traces", list}}, 2) << '\n';
      return exit_fine;
    }
    for (const Json& t : list) {
      rows.push_back({text_of(t["name"]), text_of(t["kind"]),
                      text_of(t["size"]) + (t["kind"] == "chain" ? " stages" : " ops"), text_of(t["device"])});
    }
    std::cout << in_columns(rows);
    std::cout << "synthetic:\n";
    for (const std::string& line : synthetic_help()) std::cout << "  " << line << '\n';
    for (const std::string& line : synthetic_graph_help()) std::cout << "  " << line << '\n';
    for (const std::string& line : framework_help()) std::cout << "  " << line << '\n';
    std::cout << "networks that 'plimsoll replay' can run:\n";
    for (const std::string& line : network_help()) std::cout << "  " << line << '\n';
  }
  return exit_fine;
}

void describe(const StrategyInfo& s) {
  std::cout << fmt::format("{} ({}{})\n  {}\n  source: {}\n", s.name, name_of(s.family),
                           s.chains_only ? ", chains only" : "", s.summary, s.source);
  if (s.options.empty()) std::cout << "  no options\n";
  for (const OptionInfo& option : s.options) {
    std::cout << fmt::format("  {}={}  {}\n      {}\n", option.name, s.options.default_text(option),
                             option.values_text(), option.help);
  }
}

void describe(const Platform& p) {
  std::cout << fmt::format("{}\n  source: {}\n", p.name, p.source);
  const auto capacity = [](std::optional<Bytes> bytes) {
    return bytes ? format_bytes(*bytes) : std::string("unlimited");
  };
  std::vector<std::vector<std::string>> rows;
  for (const Device& d : p.devices) {
    std::string memory = "memory " + capacity(p[d.memory].capacity);
    if (d.memory_bandwidth) memory += " at " + format_bandwidth(*d.memory_bandwidth);
    if (d.adam) memory += ", updates " + format_bandwidth(*d.adam);
    for (const auto& [dtype, rate] : d.peak) memory += fmt::format(", {} {}", dtype, format_flops_rate(rate));
    if (d.efficiency) memory += fmt::format(", efficiencies {} of {}", d.efficiency->name, d.efficiency->model);
    rows.push_back({"  device " + d.name, d.model.empty() ? "any device" : d.model, memory});
  }
  std::cout << in_columns(rows);
  for (const Memory& m : p.memories) {
    if (m.device) continue;
    std::cout << fmt::format("  memory {:<10} {}", m.name, capacity(m.capacity));
    const auto rate = [](BytesPerSecond value, bool is_bound) {
      return format_bandwidth(value) + (is_bound ? " at most" : "");
    };
    if (m.bandwidth) std::cout << " at " << rate(*m.bandwidth, m.bandwidth_is_bound);
    if (m.adam) std::cout << ", updates " << rate(*m.adam, m.adam_is_bound);
    std::cout << '\n';
  }
  for (const Link& l : p.links) {
    const std::string back = l.back ? " (back " + format_bandwidth(*l.back) + ")" : std::string();
    std::cout << fmt::format("  link {:<12} {} - {}: {}{}, {}{}\n", l.name, p.vertices[l.from].name,
                             p.vertices[l.to].name, format_bandwidth(l.bandwidth), back, format_seconds(l.latency),
                             l.full_duplex ? "" : ", half duplex");
  }
}

void describe(const Trace& trace) {
  const Source& source = source_of(trace);
  std::cout << fmt::format("{} ({}, {} {})\n", name_of(trace), kind_of(trace), size_of(trace),
                           kind_of(trace) == "chain" ? "stages" : "ops");
  std::cout << fmt::format("  {}{}, {}\n", source.kind == Source::Kind::measured ? "measured" : "computed",
                           source.device.empty() ? "" : " on '" + source.device + "'", source.dtype);
  for (const auto& [key, value] : source.notes) std::cout << fmt::format("  {}: {}\n", key, value);
  const Chain* chain = std::get_if<Chain>(&trace.model);
  if (chain == nullptr) return;
  std::cout << fmt::format("  input {}, parameters {}\n", format_bytes(chain->input),
                           format_bytes(parameter_bytes(*chain)));
  std::cout << fmt::format("  {:<24}{:>12}{:>12}{:>12}{:>12}\n", "stage", "forward", "backward", "output", "saved");
  for (const Stage& s : chain->stages) {
    std::cout << fmt::format("  {:<24}{:>12}{:>12}{:>12}{:>12}\n", s.name, format_seconds(s.forward),
                             format_seconds(s.backward), format_bytes(s.output), format_bytes(s.saved));
  }
}

template <class Names>
bool has(const Names& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

int run_describe(const std::string& name) {
  if (const StrategyInfo* strategy = find_strategy(name)) {
    describe(*strategy);
    return exit_fine;
  }
  const std::vector<std::string> platforms = shipped_platforms(), traces = shipped_traces();
  const bool is_path = name.find('/') != std::string::npos || name.find('.') != std::string::npos;
  if (has(platforms, name) || name.ends_with(".yaml") || name.ends_with(".yml")) {
    describe(load_platform(name));
  } else if (has(traces, name) || is_made_by_rule(name) || is_path) {
    describe(load_model(name));
  } else {
    std::vector<std::string> known(platforms);
    known.insert(known.end(), traces.begin(), traces.end());
    for (const StrategyInfo* strategy : strategies()) known.emplace_back(strategy->name);
    throw InputError(
        fmt::format("describe: no strategy, platform or trace is called '{}'{}", name, suggestion(name, known)));
  }
  return exit_fine;
}

}  // namespace

void add_list_command(CLI::App& app, int& exit_code, const std::string&) {
  CLI::App* command = app.add_subcommand("list", "list the strategies, the platforms, the traces or the models");
  auto kind = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  command
      ->add_option("kind", *kind, "what to list: strategies, platforms, traces or models (published ones, by formula)")
      ->required()
      ->check(CLI::IsMember({"strategies", "platforms", "traces", "models"}));
  command->add_flag("--json", *json, "print one JSON object");
  command->callback([kind, json, &exit_code] { exit_code = run_list(*kind, *json); });
}

void add_describe_command(CLI::App& app, int& exit_code, const std::string&) {
  CLI::App* command = app.add_subcommand("describe", "describe a strategy with its options, a platform or a trace");
  auto name = std::make_shared<std::string>();
  command->add_option("name", *name, "name of a strategy, platform or trace, or a platform or trace file")->required();
  command->callback([name, &exit_code] { exit_code = run_describe(*name); });
}

}  // namespace plimsoll
