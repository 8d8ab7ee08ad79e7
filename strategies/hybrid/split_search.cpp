#include "strategies/hybrid/split_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <utility>

namespace plimsoll {
namespace {

using SplitCuts = std::vector<std::vector<std::optional<std::uint8_t>>>;  // by operator and axis

constexpr std::string_view too_large =
    "its tables would have more than 4 million entries: operators have too many others beside them";

/// What both ways of searching begin with.
struct Searched {
  BspModel model;
  CollectiveTimes times;
  SplitCuts cuts;
};

std::variant<Searched, std::string> begin(const Problem& problem, const Options& options, const Mesh& mesh) {
  if (problem.chain) {
    return fmt::format(
        "'{}' is a chain of stages, whose operators are not known: give a graph, such as "
        "transformer:view=graph",
        problem.chain->name);
  }
  if (mesh.ranks() > problem.platform.devices.size()) {
    return fmt::format("{} ranks, but '{}' has {} devices", mesh.ranks(), problem.platform.name,
                       problem.platform.devices.size());
  }
  const bool is_simulated = options.text("model") == "simulated";
  std::variant<BspModel, std::string> model =
      BspModel::of(problem, is_simulated ? WorkModel::simulated : WorkModel::symbolic);
  if (std::string* why = std::get_if<std::string>(&model)) return std::move(*why);
  std::variant<CollectiveTimes, std::string> times = CollectiveTimes::on(problem.platform, mesh);
  if (std::string* why = std::get_if<std::string>(&times)) return std::move(*why);
  Searched made{std::get<BspModel>(std::move(model)), std::get<CollectiveTimes>(std::move(times)), {}};
  made.cuts.resize(made.model.operators());
  return made;
}

void take(const SplitTable& table, const SplitChoices& choices, SplitCuts& cuts) {
  for (std::size_t o = 0; o < cuts.size(); ++o) {
    const auto& chosen = table.choices(o)[choices[o]].cuts;
    cuts[o].insert(cuts[o].end(), chosen.begin(), chosen.end());
  }
}

/// A search level by level, begun.
struct Halving {
  Mesh mesh;
  Searched searched;
};

std::variant<Halving, std::string> begin_halving(const Problem& problem, const Options& options) {
  const std::uint32_t devices = split_ranks(options, devices_left(problem));
  if (!std::has_single_bit(devices)) {
    return fmt::format("{} devices cannot be halved again and again; {} or {} can", devices, std::bit_floor(devices),
                       std::bit_ceil(devices));
  }
  Mesh mesh;
  for (std::uint32_t ranks = 1; ranks < devices; ranks *= 2) {
    mesh.axes.push_back({"half" + std::to_string(mesh.axes.size()), 2});
  }
  std::variant<Searched, std::string> begun = begin(problem, options, mesh);
  if (std::string* why = std::get_if<std::string>(&begun)) return std::move(*why);
  return Halving{std::move(mesh), std::get<Searched>(std::move(begun))};
}

/// Whether the search found cuts.
bool cut_in_halves(const Mesh& mesh, Searched& searched, const LevelSearch& search, double weight) {
  for (std::size_t level = 0; level < mesh.axes.size(); ++level) {
    const SplitTable table = searched.model.table(mesh, level, level + 1, searched.cuts, searched.times);
    const std::optional<SplitChoices> choices = search(searched.model, table, weight);
    if (!choices) return false;
    take(table, *choices, searched.cuts);
  }
  return true;
}

/// Devices of each node, where all of these nodes have as many.
std::uint32_t devices_of_a_node(const Platform& platform, std::uint32_t devices) {
  std::map<std::uint32_t, std::uint32_t> counts;
  for (std::uint32_t d = 0; d < devices; ++d) ++counts[platform.devices[d].node];
  const std::uint32_t first = counts.begin()->second;
  const auto is_other = [&](const auto& node) { return node.second != first; };
  return std::ranges::any_of(counts, is_other) ? devices : first;
}

}  // namespace

std::variant<Problem, std::string> split_in_halves(const Problem& problem, const Options& options,
                                                   const LevelSearch& search) {
  std::variant<Halving, std::string> begun = begin_halving(problem, options);
  if (std::string* why = std::get_if<std::string>(&begun)) return std::move(*why);
  auto& [mesh, searched] = std::get<Halving>(begun);
  if (!cut_in_halves(mesh, searched, search, 1)) return std::string(too_large);
  const SplitPlan plan = searched.model.plan(mesh, searched.cuts);
  return on_mesh(problem, plan);
}

std::variant<Problem, std::string> split_in_halves_and_swept(const Problem& problem, const Options& options,
                                                             const LevelSearch& search, std::uint32_t sweeps) {
  std::variant<Halving, std::string> begun = begin_halving(problem, options);
  if (std::string* why = std::get_if<std::string>(&begun)) return std::move(*why);
  auto& [mesh, searched] = std::get<Halving>(begun);
  const std::uint32_t inner = devices_of_a_node(problem.platform, mesh.ranks());
  const auto outer = static_cast<std::size_t>(std::bit_width(mesh.ranks() / inner) - 1);
  std::optional<Seconds> least;
  SplitCuts best;
  for (const double weight : {1.0, 0.5, 0.0}) {
    searched.cuts.assign(searched.cuts.size(), {});
    if (!cut_in_halves(mesh, searched, search, weight)) return std::string(too_large);
    const SplitTable table =
        searched.model.table(mesh, searched.model.choices_around(searched.cuts, outer), searched.times);
    const SplitChoices choices = swept(table, searched.model.uniform_starts(table, outer, weight), sweeps, weight);
    const Seconds cost = table.priced_with_overlap(choices);
    if (least && !(cost < *least)) continue;
    least = cost;
    best.assign(searched.cuts.size(), {});
    take(table, choices, best);
  }
  const SplitPlan plan = searched.model.plan(mesh, best);
  return on_mesh(problem, plan);
}

std::variant<Problem, std::string> split_at_once(
    const Problem& problem, const Options& options,
    const std::function<SplitSearch(const BspModel&, const SplitTable&)>& search) {
  const std::uint32_t devices = split_ranks(options, devices_left(problem));
  if (devices > problem.platform.devices.size()) {
    return fmt::format("{} ranks, but '{}' has {} devices", devices, problem.platform.name,
                       problem.platform.devices.size());
  }
  const std::uint32_t inner = devices_of_a_node(problem.platform, devices);
  Mesh mesh;
  if (devices > inner) mesh.axes.push_back({"nodes", devices / inner});
  mesh.axes.push_back({"devices", inner});
  std::variant<Searched, std::string> begun = begin(problem, options, mesh);
  if (std::string* why = std::get_if<std::string>(&begun)) return std::move(*why);
  auto& [model, times, cuts] = std::get<Searched>(begun);
  const SplitTable table = model.table(mesh, 0, mesh.axes.size(), cuts, times);
  SplitSearch found = search(model, table);
  if (!found.choices) return std::string(too_large);
  take(table, *found.choices, cuts);
  std::variant<Problem, std::string> made = on_mesh(problem, model.plan(std::move(mesh), cuts));
  if (Problem* split = std::get_if<Problem>(&made); split != nullptr && !found.note.empty()) {
    split->notes.push_back(std::move(found.note));
  }
  return made;
}

}  // namespace plimsoll
