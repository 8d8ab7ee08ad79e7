// Planners of layers in one row, on a table of layers: Alpa's search between operators, SAPP's integer program.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "experiments/tables/stage_planners.h"
#include "sim/io/input_error.h"
#include "strategies/pipelining/planners/alpa.h"
#include "strategies/pipelining/planners/sapp.h"

namespace plimsoll {
namespace {

/// The first option of each layer, which is for one device. Throws InputError where a layer has none, or is not one of
/// both passes. `planner` is for the message.
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

std::vector<std::uint32_t> layers_between(std::uint32_t first, std::uint32_t last) {
  std::vector<std::uint32_t> layers(last - first);
  std::iota(layers.begin(), layers.end(), first);
  return layers;
}

/// The fastest option of a layer on so many devices that share its tensors; null: none.
const LayerOption* fastest_on(const Layer& layer, std::uint32_t devices) {
  const LayerOption* best = nullptr;
  for (const LayerOption& option : layer.options) {
    if (option.devices != devices) continue;
    if (best == nullptr || option.forward + option.backward < best->forward + best->backward) best = &option;
  }
  return best;
}

struct AlpaWay {
  std::uint32_t replicas = 1, degree = 1;
  double fixed = 0, kept = 0;
};

/// Stages of layers from `first` on, `degree` devices a replica: a micro-batch is divided among the replicas.
void add_alpa_stages(const LayerTable& table, const StageOptions& options, std::uint32_t first, std::uint32_t degree,
                     double rate, AlpaProblem& problem, std::vector<AlpaWay>& ways) {
  double seconds = 0, parameters = 0, fixed = 0, kept = 0;
  for (std::uint32_t last = first; last < table.layers.size(); ++last) {
    const LayerOption* option = fastest_on(table.layers[last], degree);
    if (option == nullptr) return;
    seconds += (option->forward + option->backward).value;
    parameters += static_cast<double>(option->parameters.count);
    fixed += static_cast<double>(option->fixed.count);
    kept += static_cast<double>(option->kept.count);
    for (std::uint32_t replicas = 1; replicas * degree <= problem.devices; replicas *= 2) {
      const double exchange = replicas == 1 ? 0 : 4.0 * (replicas - 1) * parameters / problem.micro_batches / rate;
      AlpaProblem::Stage stage{.first = first, .last = last + 1, .devices = replicas * degree};
      stage.seconds = (seconds + exchange) / replicas;
      if (options.memory) {
        const double each = kept / replicas, room = static_cast<double>(options.memory->count) - fixed - each;
        if (room < 0) continue;
        const double behind = each > 0 ? std::floor(room / each) : static_cast<double>(table.layers.size());
        stage.most_behind = static_cast<std::uint32_t>(std::min(behind, static_cast<double>(table.layers.size())));
      }
      problem.stages.push_back(stage);
      ways.push_back({replicas, degree, fixed, kept / replicas});
    }
  }
}

}  // namespace

std::variant<StagePlan, std::string> alpa_stages(const LayerTable& table, const StageOptions& options) {
  const auto layers = static_cast<std::uint32_t>(table.layers.size());
  constexpr std::uint32_t most_layers = 100;
  if (layers > most_layers) {
    throw InputError(
        fmt::format("alpa: '{}' has {} layers, and this planner takes up to {}", table.name, layers, most_layers));
  }
  plain_options(table, "alpa");
  constexpr std::uint32_t most_devices = 1024;
  AlpaProblem problem{.layers = layers,
                      .devices = devices_of(options, "alpa", most_devices),
                      .micro_batches = options.micro_batches,
                      .stages = {}};
  const double rate = problem.devices > 1 ? bandwidth_of(options, table).value : 1;
  std::set<std::uint32_t> degrees;
  for (const Layer& layer : table.layers) {
    for (const LayerOption& option : layer.options) degrees.insert(option.devices);
  }
  std::vector<AlpaWay> ways;
  for (std::uint32_t first = 0; first < layers; ++first) {
    for (const std::uint32_t degree : degrees) add_alpa_stages(table, options, first, degree, rate, problem, ways);
  }
  const std::optional<AlpaPlan> found = plan_alpa(problem);
  if (!found) return "no stages use all devices and keep within the memory";
  StagePlan plan{.time = {found->seconds},
                 .facts = {{"bounds_tried", found->bounds}},
                 .note = fmt::format("an iteration of {} micro-batch{}", options.micro_batches,
                                     options.micro_batches == 1 ? "" : "es"),
                 .stages = {}};
  for (std::size_t k = 0; k < found->stages.size(); ++k) {
    const AlpaProblem::Stage& stage = problem.stages[found->stages[k]];
    const AlpaWay& way = ways[found->stages[k]];
    const auto in_flight = static_cast<std::uint32_t>(found->stages.size() - k);
    plan.stages.push_back({.layers = layers_between(stage.first, stage.last),
                           .replicas = way.replicas,
                           .devices = way.degree,
                           .in_flight = in_flight,
                           .time = Seconds{stage.seconds},
                           .memory = {std::llround(way.fixed + in_flight * way.kept)}});
  }
  return plan;
}

std::variant<StagePlan, std::string> sapp_stages(const LayerTable& table, const StageOptions& options) {
  if (!options.memory) throw InputError("--memory: 'sapp' needs it");
  constexpr std::uint32_t most_devices = 1000;
  SappProblem problem{.bodies = {},
                      .devices = devices_of(options, "sapp", most_devices),
                      .chunks = options.chunks,
                      .micro_batches = options.micro_batches,
                      .memory_bytes = static_cast<double>(options.memory->count),
                      .limits = {.seconds = options.seconds}};
  constexpr std::uint32_t most_parts = 1000;
  if (problem.devices * problem.chunks > most_parts) {
    throw InputError(fmt::format("sapp: {} devices of {} parts each, and this planner takes up to {} parts",
                                 problem.devices, problem.chunks, most_parts));
  }
  std::vector<std::uint32_t> bodies;
  std::optional<std::uint32_t> head, tail;
  const std::vector<LayerOption> plain = plain_options(table, "sapp");
  for (std::uint32_t l = 0; l < table.layers.size(); ++l) {
    const Layer& layer = table.layers[l];
    const LayerOption& first = plain[l];
    if (layer.place != Layer::Place::anywhere) {
      std::optional<std::uint32_t>& end = layer.place == Layer::Place::first ? head : tail;
      if (end || layer.count != 1) {
        throw InputError(fmt::format("sapp: '{}' has several layers of the first or last stage", table.name));
      }
      end = l;
      (layer.place == Layer::Place::first ? problem.head : problem.tail) = {first.forward.value, first.backward.value,
                                                                            static_cast<double>(first.fixed.count)};
      continue;
    }
    bodies.push_back(l);
    SappProblem::Body& body = problem.bodies.emplace_back();
    body.count = layer.count;
    body.forward_seconds = first.forward.value;
    body.fixed_bytes = static_cast<double>(first.fixed.count);
    for (const LayerOption& option : layer.options) {
      if (option.forward != first.forward || option.fixed != first.fixed || option.devices != 1) {
        throw InputError(
            fmt::format("sapp: the ways to run layer '{}' differ in more than backward_s and kept_bytes", layer.name));
      }
      body.ways.push_back({option.backward.value, static_cast<double>(option.kept.count)});
    }
  }
  if (bodies.empty())
    throw InputError(fmt::format("sapp: '{}' has only layers of the first and last stage", table.name));
  const SappOutcome outcome = plan_sapp(problem);
  if (!outcome.plan) return outcome.reason;
  const SappPlan& found = *outcome.plan;
  StagePlan plan{.time = {found.seconds},
                 .facts = {{"bound_s", found.bound}, {"proved", found.proved}},
                 .note = "of the longest stage, a micro-batch; ",
                 .stages = {}};
  plan.note += found.proved ? "proved least"
                            : fmt::format("at most {:.1f} % from the least: {}",
                                          100 * (found.seconds / found.bound - 1), found.note);
  for (std::uint32_t v = 0; v < problem.chunks; ++v) {
    for (std::uint32_t s = 0; s < problem.devices; ++s) {
      PlannedStage& stage = plan.stages.emplace_back();
      stage.device = s;
      stage.in_flight = sapp_in_flight(problem, v, s);
      stage.memory = {std::llround(found.bytes[s])};
      const auto add = [&](std::uint32_t layer, const LayerOption& option) {
        stage.layers.push_back(layer);
        stage.ways.push_back(option.name);
      };
      if (head && v == 0 && s == 0) add(*head, plain[*head]);
      for (std::uint32_t b = 0; b < bodies.size(); ++b) {
        for (std::uint32_t w = 0; w < found.layers[b].size(); ++w) {
          for (std::uint32_t k = 0; k < found.layers[b][w][v][s]; ++k) {
            add(bodies[b], table.layers[bodies[b]].options[w]);
          }
        }
      }
      if (tail && v + 1 == problem.chunks && s + 1 == problem.devices) add(*tail, plain[*tail]);
    }
  }
  return plan;
}

}  // namespace plimsoll
