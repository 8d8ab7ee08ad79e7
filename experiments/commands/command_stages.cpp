#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <memory>

#include "experiments/commands/commands.h"
#include "experiments/study/planning_watch.h"
#include "experiments/tables/stage_planners.h"
#include "sim/io/input_error.h"
#include "sim/io/json/json.h"
#include "sim/io/quantity.h"

namespace plimsoll {

std::span<const StagePlanner> stage_planners() {
  static const std::array planners{
      StagePlanner{"piper", {"--straight", "--micro-batches", "--only", "--tensor"}, {}, piper_stages},
      StagePlanner{"equal", {"--straight", "--micro-batches", "--only", "--tensor", "--counted"}, {}, equal_stages},
      StagePlanner{"ideals", {"--hosts"}, {LayerTrait::shared_devices, LayerTrait::transfer_times}, ideals_stages},
      StagePlanner{"alpa", {"--micro-batches"}, {}, alpa_stages},
      StagePlanner{"sapp",
                   {"--micro-batches", "--chunks", "--seconds"},
                   {LayerTrait::rows_of_equals, LayerTrait::ends},
                   sapp_stages},
  };
  return planners;
}

BytesPerSecond bandwidth_of(const StageOptions& options, const LayerTable& table) {
  if (options.bandwidth) return *options.bandwidth;
  throw InputError(fmt::format("--bandwidth: needed, '{}' does not say how fast devices are linked", table.name));
}

std::uint32_t devices_of(const StageOptions& options, std::string_view planner, std::uint32_t most) {
  if (options.devices <= most) return options.devices;
  throw InputError(fmt::format("--devices: '{}' takes up to {}, found {}", planner, most, options.devices));
}

namespace {

struct StagesArguments {
  std::string model, planner, devices, bandwidth, memory, hosts, micro_batches, only, tensor, counted, chunks, seconds;
  bool straight = false, json = false;
};

const StagePlanner& stage_planner(const StagesArguments& arguments) {
  std::vector<std::string_view> names;
  for (const StagePlanner& planner : stage_planners()) {
    if (planner.name == arguments.planner) return planner;
    names.push_back(planner.name);
  }
  throw InputError(fmt::format("--planner: expected {}, found '{}'{}", alternatives(names), arguments.planner,
                               suggestion(arguments.planner, names)));
}

std::optional<std::uint32_t> whole_option(std::string_view name, const std::string& word, std::int64_t least,
                                          std::int64_t most) {
  if (word.empty()) return std::nullopt;
  const Parsed<std::int64_t> value = parse_integer(word);
  if (!value.fine() || value.value < least || value.value > most) {
    throw InputError(fmt::format("{}: expected a whole number from {} to {}, found '{}'", name, least, most, word));
  }
  return static_cast<std::uint32_t>(value.value);
}

StageOptions stage_options(const StagesArguments& arguments, const StagePlanner& planner, const LayerTable& table) {
  const auto take = [&](std::string_view option, bool given) {
    if (!given || std::ranges::find(planner.takes, option) != planner.takes.end()) return;
    throw InputError(fmt::format("{}: '{}' does not take it", option, planner.name));
  };
  take("--straight", arguments.straight);
  take("--hosts", !arguments.hosts.empty());
  take("--micro-batches", !arguments.micro_batches.empty());
  take("--only", !arguments.only.empty());
  take("--tensor", !arguments.tensor.empty());
  take("--counted", !arguments.counted.empty());
  take("--chunks", !arguments.chunks.empty());
  take("--seconds", !arguments.seconds.empty());
  StageOptions options{.bandwidth = table.bandwidth, .memory = table.memory};
  const std::optional<std::uint32_t> devices = whole_option("--devices", arguments.devices, 1, 1'000'000);
  if (!devices && !table.devices) {
    throw InputError(fmt::format("--devices: needed, '{}' does not say how many", table.name));
  }
  options.devices = devices ? *devices : *table.devices;
  if (!arguments.bandwidth.empty()) {
    const Parsed<BytesPerSecond> bandwidth = parse_bandwidth(arguments.bandwidth);
    if (!bandwidth.fine()) throw InputError(fmt::format("--bandwidth: {}", bandwidth.complaint));
    options.bandwidth = bandwidth.value;
  }
  options.straight = arguments.straight;
  if (!arguments.memory.empty()) {
    const Parsed<std::optional<Bytes>> memory = parse_capacity(arguments.memory);
    if (!memory.fine()) throw InputError(fmt::format("--memory: {}", memory.complaint));
    options.memory = memory.value;
  }
  options.hosts = whole_option("--hosts", arguments.hosts, 0, 1000).value_or(table.hosts.value_or(0));
  options.micro_batches =
      whole_option("--micro-batches", arguments.micro_batches, 1, 1'000'000).value_or(table.micro_batches.value_or(1));
  options.chunks = whole_option("--chunks", arguments.chunks, 1, 100).value_or(1);
  options.seconds = whole_option("--seconds", arguments.seconds, 1, 100'000).value_or(60);
  options.most_devices = whole_option("--tensor", arguments.tensor, 1, 1'000'000);
  if (!arguments.only.empty()) options.only = arguments.only;
  if (!arguments.counted.empty()) options.counted = arguments.counted;
  return options;
}

void refuse_unheeded(const StagePlanner& planner, const LayerTable& table) {
  const auto refuse_if = [&](bool has, LayerTrait trait, std::string_view layer, std::string_view what) {
    if (!has || std::ranges::find(planner.heeds, trait) != planner.heeds.end()) return;
    throw InputError(fmt::format("{}: layer '{}' of '{}' {}, which this planner does not heed", planner.name, layer,
                                 table.name, what));
  };
  for (const Layer& layer : table.layers) {
    refuse_if(layer.count != 1, LayerTrait::rows_of_equals, layer.name,
              fmt::format("stands for {} layers in a row", layer.count));
    refuse_if(layer.place != Layer::Place::anywhere, LayerTrait::ends, layer.name, "has its place at an end");
    refuse_if(layer.together.has_value(), LayerTrait::shared_devices, layer.name, "shares a device with others");
  }
  for (const LayerEdge& edge : table.edges) {
    refuse_if(edge.time > Seconds{0}, LayerTrait::transfer_times, table.layers[edge.from].name,
              "sends in a stated time instead of bytes");
  }
}

std::string place_of(const PlannedStage& stage) {
  if (stage.device) return fmt::format("device {}", *stage.device);
  return stage.host ? "host" : "device";
}

Json stages_json(const StagesArguments& arguments, const LayerTable& table, const StageOptions& options,
                 const StagePlan& plan) {
  Json json = {{"model", arguments.model}, {"planner", arguments.planner}};
  json["memory_budget_bytes"] = options.memory ? Json(options.memory->count) : Json(nullptr);
  json["feasible"] = true;
  json["time_s"] = plan.time.value;
  for (const auto& [key, value] : plan.facts) json[key] = value;
  json["stages"] = Json::array();
  for (const PlannedStage& stage : plan.stages) {
    Json names = Json::array();
    for (const std::uint32_t layer : stage.layers) names.push_back(table.layers[layer].name);
    json["stages"].push_back({{"on", place_of(stage)},
                              {"replicas", stage.replicas},
                              {"devices", stage.devices},
                              {"in_flight", stage.in_flight ? Json(*stage.in_flight) : Json(nullptr)},
                              {"time_s", stage.time ? Json(stage.time->value) : Json(nullptr)},
                              {"memory_bytes", stage.memory.count},
                              {"layers", names}});
    if (!stage.ways.empty()) json["stages"].back()["ways"] = stage.ways;
  }
  return json;
}

std::string stages_text(const LayerTable& table, std::string_view planner, const StagePlan& plan) {
  std::string text = fmt::format("{}: {} stage{}, {:.10g} s; {}\n", planner, plan.stages.size(),
                                 plan.stages.size() == 1 ? "" : "s", plan.time.value, plan.note);
  constexpr std::string_view row = "  {:>5} {:>9} {:>8} {:>7} {:>9} {:>10} {:>10} {:>6}  {}\n";
  text += fmt::format(fmt::runtime(row), "stage", "on", "replicas", "devices", "in flight", "time", "memory", "layers",
                      "first to last");
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const PlannedStage& stage = plan.stages[s];
    std::string layers = stage.layers.empty() ? "none" : table.layers[stage.layers.front()].name;
    if (stage.layers.size() > 1) layers += " ... " + table.layers[stage.layers.back()].name;
    text += fmt::format(fmt::runtime(row), s, place_of(stage), stage.replicas, stage.devices,
                        stage.in_flight ? fmt::format("{}", *stage.in_flight) : "-",
                        stage.time ? format_seconds(*stage.time) : "-", format_bytes(stage.memory), stage.layers.size(),
                        layers);
  }
  return text;
}

int run_stages(const StagesArguments& arguments) {
  const StagePlanner& planner = stage_planner(arguments);
  const LayerTable table = read_layer_table(arguments.model);
  refuse_unheeded(planner, table);
  const StageOptions options = stage_options(arguments, planner, table);
  const PlanningWatch watch("planning with " + arguments.planner);
  const std::variant<StagePlan, std::string> made = planner.plan(table, options);
  if (const auto* reason = std::get_if<std::string>(&made)) {
    if (arguments.json) {
      std::cout << json_text(Json{{"model", arguments.model},
                                  {"planner", arguments.planner},
                                  {"memory_budget_bytes", options.memory ? Json(options.memory->count) : Json(nullptr)},
                                  {"feasible", false},
                                  {"time_s", nullptr},
                                  {"reason", *reason}},
                             2)
                << "\n";
    }
    std::cerr << fmt::format("{}: no stages: {}\n", arguments.planner, *reason);
    return exit_no_result;
  }
  const auto& plan = std::get<StagePlan>(made);
  std::cout << (arguments.json ? json_text(stages_json(arguments, table, options, plan), 2) + "\n"
                               : stages_text(table, arguments.planner, plan));
  return exit_fine;
}

}  // namespace

void add_stages_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "stages", "cut a table of layers into stages of a pipeline with one of the published planners");
  auto arguments = std::make_shared<StagesArguments>();
  command
      ->add_option("model", arguments->model,
                   "a table of layers, as 'plimsoll import --as layers' makes them (traces/imports.md)")
      ->required()
      ->type_name("TABLE");
  command
      ->add_option("--planner", arguments->planner,
                   "planner (docs/strategies/pipelining/cuts.md): piper, equal, ideals, alpa or sapp")
      ->required()
      ->type_name("NAME");
  command->add_option("--devices", arguments->devices, "number of devices (default: the table's)")->type_name("N");
  command
      ->add_option("--bandwidth", arguments->bandwidth,
                   "of the links between devices, such as '12 GB/s' (default: the table's)")
      ->type_name("RATE");
  command
      ->add_option("-m,--memory", arguments->memory,
                   "of each device, such as '16 GB', or unlimited (default: the table's, else unlimited)")
      ->type_name("SIZE");
  command->add_option("--hosts", arguments->hosts, "ideals: hosts in addition to the devices (default: the table's)")
      ->type_name("N");
  command
      ->add_option("--micro-batches", arguments->micro_batches,
                   "piper, equal, alpa, sapp: micro-batches in an iteration (default: the table's, else 1)")
      ->type_name("M");
  command->add_option("--only", arguments->only, "piper, equal: of the ways to run a layer, only those of this name")
      ->type_name("NAME");
  command->add_option("--tensor", arguments->tensor, "piper, equal: at most N devices that share a layer's tensors")
      ->type_name("N");
  command
      ->add_option("--counted", arguments->counted,
                   "equal: layers of this name are shared out in equal numbers; those before them go with the first "
                   "ones,\nthose behind them with the last ones, or have stages of their own (default: all layers)")
      ->type_name("NAME");
  command->add_flag("--straight", arguments->straight, "piper, equal: no replicas");
  command->add_option("--chunks", arguments->chunks, "sapp: parts of each device, interleaved (default: 1)")
      ->type_name("V");
  command->add_option("--seconds", arguments->seconds, "sapp: wall time for the solver of unlike layers (default: 60)")
      ->type_name("S");
  command->add_flag("--json", arguments->json, "print one JSON object");
  command->footer(
      "The exit code is 1 if no stages keep within the memory.\n"
      "  plimsoll import piper bert32a100.json --as layers -o layers.json\n"
      "  plimsoll stages layers.json --planner piper --devices 8 --memory \"8 GiB\"");
  command->callback([arguments, &exit_code] { exit_code = run_stages(*arguments); });
}

}  // namespace plimsoll
